//! The script of an array job: a worker each task.

use std::path::{Path, PathBuf};

use longhaul_core::failure::{Failure, FailureKind};

use super::io_failure;
use super::jobs::DIRECTORY;

/// Returns the script for a plan, with the name of its jobs and further options of sbatch; later
/// ones replace earlier ones.
pub(super) fn text(plan: &Path, name: &str, options: &[String]) -> Result<String, Failure> {
    let plan = absolute(plan)?;
    let program = std::env::current_exe().map_err(io_failure("find", Path::new("longhaul")))?;
    // sbatch replaces %A and %a in the name.
    let logs = text_of(&plan.join(DIRECTORY))?.replace('%', "%%");
    let log = quoted(&format!("--output={logs}/%A_%a.log"))?;
    let (plan, program) = (quoted(&text_of(&plan)?)?, quoted(&text_of(&program)?)?);
    let array = if options.iter().any(|option| states_array(option)) { "" } else { " --array=1-1" };
    let options: Vec<String> = options.iter().map(|option| quoted(option)).collect::<Result<_, _>>()?;
    let options = match options.as_slice() {
        [] => String::new(),
        options => format!("#SBATCH {}\n", options.join(" ")),
    };
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        r##"#!/bin/bash
# Workers of a plan, one each task; written by longhaul {version}. Edit it as needed: longhaul slurm submit
# submits the script that it finds, and writes a new one where there is none.
#SBATCH --job-name={name}{array} --nodes=1 --ntasks=1
#SBATCH {log} --open-mode=append
# A node that is lost: the task is queued again.
#SBATCH --requeue
# A minute before the time limit: the worker leaves its unit to the next one.
#SBATCH --signal=B:TERM@60
# A host each worker:
##SBATCH --exclusive
{options}
stop() {{
    if [ -z "$worker" ]; then
        early=yes
    elif [ -z "$stopped" ]; then
        # Once: a second signal would end it at once.
        stopped=yes
        kill -TERM "$worker"
    fi
}}
worker= early= stopped=
trap stop TERM
# Add options of longhaul work here: rate limits, logins.
{program} work -q {plan} &
worker=$!
[ -z "$early" ] || stop
# A signal ends wait before the worker; what has ended is waited for once more, for its code.
alive=yes
while [ -n "$alive" ]; do
    kill -0 "$worker" 2>/dev/null || alive=
    wait "$worker"
    code=$?
    [ $code -gt 128 ] || break
done
# A worker that was stopped before it could say so leaves units too.
[ -z "$stopped" ] || [ $code -ne 143 ] || code=75
# 75: units are left. A task that was cancelled is not running any more. A controller may be busy.
task=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}
unset SLURM_CLUSTERS "${{!SQUEUE_@}}"
for pause in 1 2 4 8 16; do
    [ $code -eq 75 ] || break
    if state=$(squeue -h -j "$task" -o %T); then
        [ "$state" = RUNNING ] || break
        scontrol requeue "$task" && break
    fi
    sleep $pause
done
exit $code
"##
    ))
}

/// Returns whether a script names a plan, as a word of its own of a command. A path that cannot be
/// quoted is one that the user has written.
pub(super) fn names(script: &str, plan: &Path) -> Result<bool, Failure> {
    let Ok(word) = text_of(&absolute(plan)?).and_then(|path| quoted(&path)) else { return Ok(true) };
    let ends = |c: Option<char>, others: &str| c.is_none_or(|c| c.is_whitespace() || others.contains(c));
    let is_word = |line: &str, at: usize| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        match before {
            Some('\'' | '"') => after == before,
            _ => ends(before, "=") && ends(after, ";&|)"),
        }
    };
    let mut commands = script.lines().filter(|line| !line.starts_with('#'));
    Ok(commands.any(|line| line.match_indices(&word).any(|(at, _)| is_word(line, at))))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(io_failure("use", path))
}

fn text_of(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| unquotable(&path.to_string_lossy()))
}

/// Returns whether an option of sbatch states the tasks of the array.
fn states_array(option: &str) -> bool {
    let is_short = option.starts_with("-a") && !option.starts_with("--");
    is_short || option == "--array" || option.starts_with("--array=")
}

fn unquotable(word: &str) -> Failure {
    let message = format!(
        "a script of Slurm cannot hold {word:?}: it has a quote, a backslash, or a character that is not printable; give the \
         plan another path, or write the script by slurm submit -o SCRIPT and edit it"
    );
    Failure::new(FailureKind::Usage, message)
}

/// Quotes a word for both the shell and sbatch, whose rules differ for quotes and backslashes.
fn quoted(word: &str) -> Result<String, Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if word.chars().any(|c| c.is_control() || "'\"\\".contains(c)) {
        return Err(unquotable(word));
    }
    let needs_quotes = word.is_empty() || !word.chars().all(is_plain);
    Ok(if needs_quotes { format!("'{word}'") } else { word.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_or_refused() {
        for (word, expected) in [
            ("--time=1:00:00", Some("--time=1:00:00")),
            ("/shared/a b", Some("'/shared/a b'")),
            ("$(x)#", Some("'$(x)#'")),
            ("", Some("''")),
            ("it's", None),
            ("a\nb", None),
            ("a\\b", None),
        ] {
            assert_eq!(quoted(word).ok().as_deref(), expected, "{word:?}");
        }
        let script = |options: &[&str]| {
            let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
            super::text(Path::new("/p 100%"), "longhaul-1", &options).unwrap()
        };
        let text = script(&["--comment=a b", "-A", "x"]);
        assert!(text.contains("--job-name=longhaul-1 --array=1-1 --nodes=1"), "{text}");
        for (option, is_stated) in
            [("--array=1-3", true), ("-a1-3", true), ("--array", true), ("--comment=--array=1", false)]
        {
            assert_eq!(script(&[option]).contains(" --array=1-1 "), !is_stated, "{option}");
        }
        assert!(text.contains("'--output=/p 100%%/slurm/%A_%a.log'"), "{text}");
        for (script, plan, is_named) in [
            (text.as_str(), "/p 100%", true),
            (&text, "/p", false),
            ("x work /shared/p2 &", "/shared/p", false),
            ("x work /mnt/shared/p", "/shared/p", false),
            ("--output=/shared/p/slurm/%A.log", "/shared/p", false),
            ("plan=\"/shared/p\"", "/shared/p", true),
            ("x work /shared/p2 /shared/p", "/shared/p", true),
        ] {
            assert_eq!(names(script, Path::new(plan)).unwrap(), is_named, "{script} {plan}");
        }
        assert!(text.contains("work -q '/p 100%' &\n") && text.contains("'--comment=a b' -A x\n"), "{text}");
    }
}
