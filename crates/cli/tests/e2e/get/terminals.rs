//! Terminal output: colours, control sequences, echo of passwords.

use crate::support::{File, Server, content, get, program, terminal};

/// Serves any target, slowly enough to observe progress.
fn slow() -> Server {
    Server::slow(500_000, &File::new(content(400_000, 110)))
}

const COLOUR: &str = "\u{1b}[3";

#[test]
fn colours_follow_the_conventions() {
    let server = slow();
    let line = program(&format!("get --insecure -o f {}", server.url("/f")));
    let shown = |env: &[(&str, &str)]| terminal(&get(), &line, env, None).map(|ended| ended.ok().stdout);
    let Some(coloured) = shown(&[]) else { return };
    assert!(coloured.contains(COLOUR) && coloured.contains("\u{1b}[2K"), "{coloured:?}");
    for env in [("NO_COLOR", "1"), ("CLICOLOR", "0")] {
        let plain = shown(&[env]).unwrap();
        assert!(!plain.contains(COLOUR) && plain.contains("ETA "), "{env:?}: {plain:?}");
        assert!(plain.contains("WARN"), "the warning has none either: {plain:?}");
    }
    let dumb = shown(&[("TERM", "dumb")]).unwrap();
    assert!(!dumb.contains('\u{1b}') && dumb.contains("limited by"), "{dumb:?}");
}

#[test]
fn output_other_than_a_terminal_has_no_control_characters() {
    let server = slow();
    let ended =
        get().args(["--insecure", &server.url("/f"), &server.url("/g")]).env("TERM", "xterm").run().ok();
    assert!(!ended.stderr.chars().any(|c| c.is_control() && c != '\n'), "{ended:?}");
    // One total, and one diagnosis below it.
    let (_, total) = ended.stderr.split_once("\n2 files: 781.2 KiB in ").unwrap();
    assert!(total.lines().nth(1).unwrap().starts_with("  limited by "), "{ended:?}");
    assert_eq!(ended.stderr.matches("\n  limited by ").count(), 1, "{ended:?}");
    for name in ["./f: ", "./g: "] {
        let mut lines = ended.stderr.lines();
        assert!(lines.any(|line| line.starts_with(name) && line.contains("limited by")), "{ended:?}");
    }
}

#[test]
fn several_files_have_lines_and_end_in_a_table_and_one_diagnosis() {
    let server = slow();
    let urls: Vec<_> = ["a", "b", "c"].iter().map(|name| server.url(&format!("/{name}"))).collect();
    let line = program(&format!("get {} http://127.0.0.1:1/gone --retries 0", urls.join(" ")));
    let line = format!("stty cols 140; {line}");
    let Some(ended) = terminal(&get(), &line, &[("NO_COLOR", "1")], None) else { return };
    // Each file has a line while it is fetched, and all have one.
    assert!(ended.stdout.matches("of 390.6 KiB").count() >= 3, "{ended:?}");
    assert!(ended.stdout.contains("of 4 files done"), "{ended:?}");
    let text = ended.stdout.rsplit("\u{1b}[2K").next().unwrap();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    let at = |start: &str| lines.iter().position(|line| line.starts_with(start));
    let head = at("file ").unwrap_or_else(|| panic!("{ended:?}"));
    assert!(["size", "time", "rate", "limited by"].iter().all(|word| lines[head].contains(word)));
    for name in ["./a ", "./b ", "./c ", "http://127.0.0.1:1/gone"] {
        assert!(at(name).is_some_and(|row| row > head), "{name}: {ended:?}");
    }
    assert!(at("3 files, 1 failed ").is_some_and(|row| row > head + 4), "{ended:?}");
    let counts = ["\n  limited by ", "ETA"].map(|words| text.matches(words).count());
    assert_eq!(counts, [1, 0], "{ended:?}");
    assert!(at("  limited by ").is_some_and(|row| row > head + 5), "{ended:?}");
}

#[test]
fn file_written_to_the_terminal_has_no_progress_in_it() {
    let server = slow();
    let line = program(&format!("get -o - {}", server.url("/f")));
    let Some(ended) = terminal(&get(), &line, &[("NO_COLOR", "1")], None) else { return };
    assert!(!ended.stdout.contains("ETA ") && ended.stdout.contains("limited by"), "{:?}", ended.status);
    let piped = terminal(&get(), &format!("{line} | cat >/dev/null"), &[], None).unwrap();
    assert!(piped.stdout.contains("ETA "), "{piped:?}");
}

#[test]
fn many_files_have_few_lines() {
    let server = slow();
    let urls: Vec<_> = (0..30).map(|name| server.url(&format!("/f{name}"))).collect();
    let line = program(&format!("get --parallel 30 {}", urls.join(" ")));
    let Some(ended) = terminal(&get(), &line, &[], None) else { return };
    let shown = &ended.stdout;
    assert!(shown.contains("of 30 files done") && shown.contains("more under way)"), "{shown:?}");
    // Lines are cleared before each drawing.
    let drawn = shown.split('\r').map(|drawing| drawing.matches("ETA ").count());
    assert!(drawn.max() <= Some(13), "{ended:?}");
}

#[test]
fn password_is_not_shown_and_ctrl_c_leaves_the_terminal_as_it_was() {
    let server = crate::get::environment::private();
    let run = get();
    let line = program(&format!("get --user ann {}; echo; stty -a", server.url("/f")));
    let Some(ended) = terminal(&run, &line, &[], Some(["Password of ann: ", "secret\n"])) else { return };
    assert!(ended.stdout.contains("Password of ann: ") && run.path("f").exists(), "{ended:?}");
    assert!(!ended.stdout.contains("secret"), "{ended:?}");
    let run = get();
    let line = program(&format!("get --user ann {}; echo code $?; stty -a", server.url("/f")));
    let ended = terminal(&run, &line, &[], Some(["Password of ann: ", "sec\u{3}"])).unwrap();
    assert!(ended.stdout.contains("code 130") && !run.path("f").exists(), "{ended:?}");
    assert!(ended.stdout.contains(" echo ") && ended.stdout.contains("isig icanon "), "{ended:?}");
}
