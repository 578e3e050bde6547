//! The script of an array job: a worker each task.

use std::path::Path;

use longhaul_core::failure::{Failure, FailureKind};

use super::io_failure;
use super::jobs::DIRECTORY;

/// Returns the script for a plan, with further options of sbatch; later ones replace earlier ones.
pub(super) fn text(plan: &Path, options: &[String]) -> Result<String, Failure> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(io_failure("use", path));
    let plan = absolute(plan)?;
    let program = std::env::current_exe().map_err(io_failure("find", Path::new("longhaul")))?;
    let path =
        |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| unquotable(&path.to_string_lossy()));
    // sbatch replaces %A and %a in the name.
    let logs = path(&plan.join(DIRECTORY))?.replace('%', "%%");
    let log = quoted(&format!("--output={logs}/%A_%a.log"))?;
    let (plan, program) = (quoted(&path(&plan)?)?, quoted(&path(&program)?)?);
    let options: Vec<String> = options.iter().map(|option| quoted(option)).collect::<Result<_, _>>()?;
    let options = match options.as_slice() {
        [] => String::new(),
        options => format!("#SBATCH {}\n", options.join(" ")),
    };
    let array = if options.contains("--array") { "" } else { " --array=1-1" };
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        r##"#!/bin/bash
# Workers of a plan, one each task; written by longhaul {version}. Edit it as needed: longhaul slurm submit
# submits the script that it finds, and writes a new one where there is none.
#SBATCH --job-name=longhaul{array} --nodes=1 --ntasks=1
#SBATCH {log} --open-mode=append
# A node that is lost: the task is queued again.
#SBATCH --requeue
# A minute before the time limit: the worker leaves its unit to the next one.
#SBATCH --signal=B:TERM@60
# A host each worker:
##SBATCH --exclusive
{options}
# Add options of longhaul work here: rate limits, logins.
{program} work -q {plan} &
worker=$!
trap 'kill -TERM $worker' TERM
wait $worker
code=$?
# A signal ends the first wait before the worker.
if [ $code -gt 128 ]; then
    wait $worker
    code=$?
fi
# 75: units are left. A task that was cancelled is not running any more.
task=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
if [ $code -eq 75 ] && [ "$(squeue -h -j "$task" -o %T)" = RUNNING ]; then
    scontrol requeue "$task"
fi
exit $code
"##
    ))
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
        let options = ["--comment=a b", "-A", "x"].map(str::to_owned);
        let text = text(Path::new("/p 100%"), &options).unwrap();
        assert!(text.contains("'--output=/p 100%%/slurm/%A_%a.log'"), "{text}");
        assert!(text.contains("work -q '/p 100%' &\n") && text.contains("'--comment=a b' -A x\n"), "{text}");
    }
}
