//! The programs and the directory of all jobs, and a job as a scenario for the lab's runner.
//!
//! The directory holds the source files (`www`), the current copies (`copies`), the results of each job, and the report.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use longhaul_lab::scenario::Scenario;
use serde::Serialize;

use crate::bench_job::BenchJob;
use crate::clients::{BenchClient, CommandWords};
use crate::nginx;
use crate::server::{PORT, TOKEN};
use crate::source_file::BenchFile;

/// The timeout of a client.
const CLIENT_TIMEOUT: &str = "1800s";
/// Reads fio's own figure from its report, and fails without one; the program's time also includes its preparation.
const FIO_VALUES: &str = r#"jq -nce 'first(inputs | select(.jobs)) | .jobs[0].write | {write_s: (.io_bytes / .bw_bytes)}' "${LAB_RECORD%.jsonl}-client.out""#;

/// The environment of runs: programs and directory.
#[derive(Debug)]
pub(crate) struct BenchEnvironment {
    /// The directory of files and report.
    pub(crate) dir: PathBuf,
    /// The measured program.
    pub(crate) longhaul: PathBuf,
    bench: PathBuf,
}

/// A scenario's file.
#[derive(Serialize)]
struct ScenarioText {
    path: BTreeMap<&'static str, String>,
    run: Vec<ScenarioRunText>,
}

#[derive(Serialize)]
struct ScenarioRunText {
    name: String,
    setup: String,
    server: Option<String>,
    port: Option<u16>,
    command: String,
    cleanup: String,
    timeout: &'static str,
}

impl BenchEnvironment {
    /// Prepares `dir`.
    ///
    /// # Errors
    /// Fails if a program is missing or `dir` is not writable.
    pub(crate) fn open(dir: &Path, longhaul: &Path, bench: &Path) -> Result<Self> {
        let longhaul = longhaul.canonicalize().with_context(|| {
            format!("cannot find {}; cargo build --release -p longhaul makes it", longhaul.display())
        })?;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        nginx::configure(&dir)?;
        let token = dir.join("token");
        fs::write(&token, TOKEN)
            .and_then(|()| fs::set_permissions(&token, fs::Permissions::from_mode(0o600)))
            .with_context(|| format!("cannot write {}", token.display()))?;
        Ok(Self { dir, longhaul, bench: bench.to_owned() })
    }

    /// Returns the directory of the source files.
    pub(crate) fn www(&self) -> PathBuf {
        self.dir.join("www")
    }

    /// Returns the scenario of a job: a run for each client.
    ///
    /// # Errors
    /// Fails if a server is missing or `dir` is not writable.
    pub(crate) fn scenario(&self, name: &str, job: &BenchJob) -> Result<Scenario> {
        let run = job.clients.iter().map(|client| self.run(name, job, *client)).collect::<Result<_>>()?;
        let text = toml::to_string(&ScenarioText { path: job.path.values().into_iter().collect(), run })?;
        // Its directory becomes LAB_DIR.
        Ok(Scenario::from_text(&text, &self.dir.join(format!("{name}.toml")), &[])?)
    }

    /// Returns the run of a client of the job `name`.
    fn run(&self, name: &str, job: &BenchJob, client: BenchClient) -> Result<ScenarioRunText> {
        let source = BenchFile::new(job.size, job.files);
        let (longhaul, bench) = (quoted(&self.longhaul), quoted(&self.bench));
        let server = format!("$LAB_SERVER:{PORT}");
        let words = CommandWords {
            longhaul: &longhaul,
            bench: &bench,
            server: &server,
            source: &format!("\"$LAB_DIR\"/www/{}", source.name),
            paths: &source.names.iter().map(|name| format!("/{name}")).collect::<Vec<_>>(),
            root: "\"$LAB_DIR\"/www",
            list: "\"$LAB_OUT\"/list",
            file: if job.files == 1 { "\"$LAB_DIR\"/copies/copy" } else { "\"$LAB_DIR\"/copies" },
            record: "\"$LAB_RECORD\"",
            token: "\"$LAB_DIR\"/token",
            size: job.size,
        };
        let mut serve = client.server().map(|server| server.command(&longhaul)).transpose()?;
        if let (Some(serve), 2..) = (&mut serve, job.files) {
            // Written for this client before the server listens: only a host knows the server's address.
            let list = self.dir.join(format!("{name}-{}.list", client.run_name()));
            let (root, copies) = (self.www(), self.dir.join("copies"));
            let (root, file) = (&root.to_string_lossy(), &copies.to_string_lossy());
            let words = CommandWords { server: &format!("SERVER:{PORT}"), root, file, ..words };
            fs::write(&list, client.list(&words))
                .with_context(|| format!("cannot write {}", list.display()))?;
            let fill = format!("sed \"s/SERVER/$LAB_SERVER/\" {} >{}", quoted(&list), words.list);
            *serve = format!("{fill} && {serve}");
        }
        Ok(ScenarioRunText {
            name: client.run_name(),
            setup: setup(job, words.source),
            port: serve.as_ref().map(|_| PORT),
            server: serve,
            command: command(client, &bench, &client.command(&words)),
            cleanup: cleanup(job, client, words.source),
            timeout: CLIENT_TIMEOUT,
        })
    }
}

/// Returns the command of a measured run; a second run is preceded by the first, whose state it finds.
fn command(client: BenchClient, bench: &str, command: &str) -> String {
    let measured = format!("exec {bench} stopwatch -- {command}");
    match client {
        BenchClient::Again(_) => format!(
            r#"export XDG_STATE_HOME="$LAB_OUT"/state; {command} >/dev/null && rm -rf "$LAB_DIR"/copies/* && {measured}"#
        ),
        _ => measured,
    }
}

/// Returns the command that makes a clean state: no copy, no dirty pages, the source fully cached or not at all.
fn setup(job: &BenchJob, source: &str) -> String {
    let cache = match job.warm {
        true => format!("cat {source} >/dev/null"),
        false => format!("dd if={source} iflag=nocache count=0 status=none"),
    };
    format!("cd \"$LAB_DIR\" && rm -rf copies && mkdir copies && sync && {cache}")
}

/// Returns the command after a run: the time to sync the copies; their sizes, and in the first repetition their content, are compared with the source's.
fn cleanup(job: &BenchJob, client: BenchClient, source: &str) -> String {
    let values = match client {
        BenchClient::Fio => FIO_VALUES.to_owned(),
        client if client.keeps_file() => {
            let (size, files) = (job.size.get(), job.files);
            format!(
                r#"set -- "$LAB_DIR"/copies/*
began=$(date +%s%N)
sync "$@"
took=$(($(date +%s%N) - began))
if [ "$(stat -c %s "$@" | grep -cx {size})" != {files} ]; then
    echo "of {files} copies not all have the {size} bytes of the original" >&2
    exit 1
fi
if [ "$LAB_REPETITION" = 1 ]; then for copy; do cmp {source} "$copy"; done; fi
printf '{{"flush_s": %d.%09d}}\n' $((took / 1000000000)) $((took % 1000000000))"#
            )
        }
        _ => "true".to_owned(),
    };
    format!("set -e\n{values}\nrm -r \"$LAB_DIR\"/copies")
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::process::{Command, Output};

    use longhaul_core::pace::Pace;
    use longhaul_core::units::Bytes;
    use longhaul_lab::scenario::Selection;

    use super::*;
    use crate::paths::BenchPath;

    fn environment(dir: &Path) -> BenchEnvironment {
        let (longhaul, bench) = ("/it's/longhaul".into(), "/longhaul-bench".into());
        BenchEnvironment { dir: dir.to_owned(), longhaul, bench }
    }

    #[test]
    fn jobs_clients_run_in_turns_on_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let clients = [BenchClient::Served(Pace::Off), BenchClient::CurlUpload, BenchClient::Fio];
        let job = BenchJob { warm: false, ..BenchJob::new(BenchPath::SharedBbr, &clients, Bytes::mib(1)) };
        let scenario = environment(dir.path()).scenario("icdc-4", &job).unwrap();
        assert_eq!((scenario.name.as_str(), &scenario.path), ("icdc-4", &BenchPath::SharedBbr.spec()));
        let [served, curl, fio] = &scenario.runs[..] else { panic!("{:?}", scenario.runs) };
        let program = r"'/it'\''s/longhaul'";
        let command = format!("exec '/longhaul-bench' stopwatch -- {program} get --json ");
        assert!(served.command.starts_with(&command), "{}", served.command);
        let from =
            r#" --record "$LAB_RECORD" -o "$LAB_DIR"/copies/copy http://$LAB_SERVER:80/random-1048576"#;
        assert!(served.command.ends_with(from), "{}", served.command);
        let server = served.server.as_ref().unwrap();
        assert!(server.command.starts_with(&format!("exec {program} serve \"$LAB_DIR\"/www ")));
        assert!(server.command.contains(" --pace off ") && server.port == Some(PORT));
        assert!(served.setup.as_ref().unwrap().contains("nocache"), "the source is not cached");
        assert!(curl.command.ends_with(r#" -T "$LAB_DIR"/www/random-1048576 http://$LAB_SERVER:80/copy"#));
        assert!(fio.server.is_none() && fio.cleanup.as_ref().unwrap().contains("jq"));
        let twice = Selection { repeat: NonZeroU32::new(2), ..Selection::default() };
        let plan = scenario.plan(&twice).unwrap();
        let order: Vec<_> = plan.iter().map(|execution| execution.run.name.as_str()).collect();
        let turn = clients.map(BenchClient::run_name);
        assert_eq!(order, [&turn[..], &turn].concat());
    }

    #[test]
    fn several_files_are_listed_for_their_server() {
        let dir = tempfile::tempdir().unwrap();
        let clients = [BenchClient::GetEach, BenchClient::Aria2List];
        let job = BenchJob { files: 2, ..BenchJob::new(BenchPath::Far, &clients, Bytes::new(10)) };
        let scenario = environment(dir.path()).scenario("small-files-1", &job).unwrap();
        let [each, listed] = &scenario.runs[..] else { panic!("{:?}", scenario.runs) };
        assert!(each.command.ends_with(
            r#" -o "$LAB_DIR"/copies http://$LAB_SERVER:80/several-10/0001 http://$LAB_SERVER:80/several-10/0002"#
        ));
        let command = &listed.command;
        assert!(command.ends_with(r#" -d "$LAB_DIR"/copies -i "$LAB_OUT"/list"#), "{command}");
        assert!(listed.server.as_ref().unwrap().command.starts_with("sed \"s/SERVER/$LAB_SERVER/\" '"));
        let list = fs::read_to_string(dir.path().join("small-files-1-aria2--j16--i-LIST.list")).unwrap();
        assert_eq!(list, "http://SERVER:80/several-10/0001\nhttp://SERVER:80/several-10/0002\n");
    }

    /// Runs a job's cleanup on a source with `original` and a copy with `copy`.
    fn clean_up(original: &str, copy: &str, repetition: &str) -> Output {
        let dir = tempfile::tempdir().unwrap();
        let size = Bytes::new(original.len() as u64);
        let job = BenchJob::new(BenchPath::Far, &[BenchClient::Curl], size);
        for (place, content) in [("www", original), ("copies", copy)] {
            fs::create_dir(dir.path().join(place)).unwrap();
            fs::write(dir.path().join(place).join("file"), content).unwrap();
        }
        let command = cleanup(&job, BenchClient::Curl, "\"$LAB_DIR\"/www/file");
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).env("LAB_DIR", dir.path()).env("LAB_REPETITION", repetition);
        let output = shell.output().unwrap();
        assert_eq!(dir.path().join("copies").exists(), !output.status.success(), "{output:?}");
        output
    }

    #[test]
    fn copy_that_differs_fails() {
        let good = clean_up("original", "original", "1");
        let printed = String::from_utf8(good.stdout).unwrap();
        assert!(good.status.success() && printed.starts_with("{\"flush_s\": 0."), "{printed}");
        assert!(!clean_up("original", "originaL", "1").status.success());
        // Only the first copy of a client is read.
        assert!(clean_up("original", "originaL", "2").status.success());
        let short = clean_up("original", "origina", "2");
        assert!(String::from_utf8(short.stderr).unwrap().contains("of 1 copies not all have the 8 bytes"));
    }

    #[test]
    fn fio_without_its_figure_fails() {
        let dir = tempfile::tempdir().unwrap();
        let job = BenchJob::new(BenchPath::Far, &[BenchClient::Fio], Bytes::new(4000));
        let command = cleanup(&job, BenchClient::Fio, "");
        let values = |report: &str| {
            fs::create_dir_all(dir.path().join("copies")).unwrap();
            fs::write(dir.path().join("fio-1-client.out"), report).unwrap();
            let mut shell = Command::new("sh");
            shell.args(["-c", &command]).env("LAB_DIR", dir.path());
            let output = shell.env("LAB_RECORD", dir.path().join("fio-1.jsonl")).output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        let report = r#"{"jobs": [{"write": {"io_bytes": 4000, "bw_bytes": 2000}}]}"#;
        assert_eq!(values(&format!("{report}\n{{\"minor_faults\": 1}}\n")).unwrap(), "{\"write_s\":2}\n");
        let nothing = r#"{"jobs": [{"write": {"io_bytes": 0, "bw_bytes": 0}}]}"#;
        for bad in ["", "{}", r#"{"jobs": []}"#, nothing, "fio: no space left on the device"] {
            assert_eq!(values(bad), None, "{bad}");
        }
    }
}
