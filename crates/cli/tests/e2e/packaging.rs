//! `make deb` and `make dist`: content of the packages, and that the unpacked program works.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::support::{names, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program without its debug information, which would be stripped and compressed for each
/// package.
static STRIPPED: LazyLock<PathBuf> = LazyLock::new(|| {
    let stripped = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stripped-longhaul");
    run(Command::new("strip").arg("--strip-unneeded").arg("-o").args([&stripped, Path::new(PROGRAM)]));
    stripped
});

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {} {}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn assert_program_works(program: &Path) {
    let version = run(Command::new(program).arg("--version"));
    assert_eq!(version.trim(), concat!("longhaul ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn debian_package_installs_the_program_and_starts_nothing() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return skip("dpkg-deb is not installed");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let deb = |out: &str| {
        let mut command = Command::new(top().join("scripts/deb.sh"));
        command.arg(&*STRIPPED).arg(dir.path().join(out)).env("SOURCE_DATE_EPOCH", "1700000000");
        command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
        PathBuf::from(run(&mut command).trim())
    };
    let package = deb("one");
    let fields = run(Command::new("dpkg-deb").arg("-f").arg(&package));
    let version = concat!("Version: ", env!("CARGO_PKG_VERSION"));
    for field in ["Package: longhaul", version, "Depends: libc6 (>= 2.", "Recommends: ca-certificates"] {
        assert!(fields.lines().any(|line| line.starts_with(field)), "{field}: {fields}");
    }
    // Without maintainer scripts nothing is started, enabled or applied.
    let control = dir.path().join("control");
    run(Command::new("dpkg-deb").arg("-e").args([&package, &control]));
    assert_eq!(names(&control), ["conffiles", "control", "md5sums"]);
    let root = dir.path().join("root");
    run(Command::new("dpkg-deb").arg("-x").args([&package, &root]));
    assert_program_works(&root.join("usr/bin/longhaul"));
    for file in [
        "usr/share/man/man1/longhaul.1.gz",
        "usr/share/man/man1/longhaul-get.1.gz",
        "usr/share/bash-completion/completions/longhaul",
        "usr/share/zsh/vendor-completions/_longhaul",
        "usr/share/fish/vendor_completions.d/longhaul.fish",
        "lib/systemd/system/longhaul-serve.service",
        "usr/lib/systemd/user/longhaul-agent.service",
        "etc/default/longhaul-serve",
        "usr/share/doc/longhaul/copyright",
        "usr/share/doc/longhaul/examples/90-longhaul.conf",
    ] {
        assert!(root.join(file).metadata().is_ok_and(|found| found.len() > 0), "{file} is missing");
    }
    assert!(!root.join("etc/sysctl.d").exists() && !root.join("usr/lib/sysctl.d").exists());
    run(Command::new("md5sum").args(["--quiet", "-c"]).arg(control.join("md5sums")).current_dir(&root));
    // dpkg installs the package into a separate root.
    let other = dir.path().join("other");
    for name in ["updates", "info"] {
        fs::create_dir_all(other.join("var/lib/dpkg").join(name)).unwrap();
    }
    fs::write(other.join("var/lib/dpkg/status"), "").unwrap();
    let mut dpkg = Command::new("dpkg");
    dpkg.arg("--root").arg(&other).args(["--force-depends", "--force-not-root", "--log=/dev/null", "-i"]);
    run(dpkg.arg(&package));
    assert_program_works(&other.join("usr/bin/longhaul"));
    // Builds are reproducible: one program gives identical packages.
    assert!(fs::read(package).unwrap() == fs::read(deb("two")).unwrap(), "the package cannot be reproduced");
}

#[test]
fn service_runs_a_command_that_the_program_takes() {
    let unit = fs::read_to_string(top().join("packaging/longhaul-serve.service")).unwrap();
    let defaults = fs::read_to_string(top().join("packaging/longhaul-serve.default")).unwrap();
    let value = |name: &str| {
        let line = defaults.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap().trim_matches('"').to_owned()
    };
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/longhaul ")).unwrap();
    let line = line.replace("${DIRECTORY}", "/nonexistent/longhaul").replace("$OPTIONS", &value("OPTIONS"));
    assert_eq!(value("DIRECTORY"), "/var/lib/longhaul-serve");
    let output = Command::new(PROGRAM).args(line.split(' ')).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The options are valid; only the directory is missing.
    assert_eq!(output.status.code(), Some(66), "{stderr}");
    assert!(stderr.contains("/nonexistent/longhaul"), "{stderr}");
}

#[test]
fn archive_has_the_name_and_the_place_that_binstall_looks_for() {
    let manifest = fs::read_to_string(top().join("crates/cli/Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let binstall = &manifest["package"]["metadata"]["binstall"];
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let filled = |template: &toml::Value| {
        let values = [("name", "longhaul"), ("bin", "longhaul"), ("version", env!("CARGO_PKG_VERSION"))];
        let values = values.into_iter().chain([("target", target.as_str()), ("repo", "R")]);
        values.fold(template.as_str().unwrap().to_owned(), |text, (name, value)| {
            text.replace(&format!("{{ {name} }}"), value)
        })
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(top().join("scripts/dist.sh"));
    let archive = run(command.arg(&*STRIPPED).arg(&target).arg(dir.path()));
    let archive = archive.trim();
    let name = archive.rsplit('/').next().unwrap();
    run(Command::new("tar").args(["-xzf", archive, "-C"]).arg(dir.path()));
    let gnu = &binstall["overrides"][&format!("{}-unknown-linux-gnu", std::env::consts::ARCH)];
    for place in [binstall, gnu] {
        assert!(filled(&place["pkg-url"]).ends_with(&format!("/{name}")), "{place:?}");
        assert_program_works(&dir.path().join(filled(&place["bin-dir"])));
    }
}
