//! Output files: full and read-only disks, special files, unusual names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::Command;

use crate::support::{Ended, File, Get, Server, content, get, in_own_mounts, names, old_kernel, same};

/// Runs in a mount namespace after `setup`, and lists the files of `mnt` on stdout, as they are
/// gone afterwards.
fn mounted(run: Get, setup: &str) -> Option<Ended> {
    fs::create_dir_all(run.path("mnt")).unwrap();
    Some(in_own_mounts(run, &format!("{setup}; \"$@\"; code=$?; ls -A mnt; exit $code"))?.run())
}

/// Serves `bytes` without their length.
fn endless(bytes: &[u8]) -> Server {
    Server::answering([b"HTTP/1.1 200 OK\r\n\r\n", bytes].concat())
}

/// Nothing is left: a file of known length does not begin, one of unknown length cannot be resumed.
#[test]
fn a_full_disk_is_an_error() {
    let file = File::new(content(5 << 20, 1));
    let (known, unknown) = (Server::of(file.clone()), endless(&file.bytes));
    let reserved = ["cannot reserve 5 MiB (5242880 bytes) for mnt/f.longhaul-part", "No space left", ""];
    // A part of the disk stays free.
    let written = ["cannot write mnt/f.longhaul-part: ", "are left on its file system", "free some space"];
    for (server, args, words) in [
        (&known, ["--streams", "1"], reserved),
        (&known, ["--streams", "4"], reserved),
        (&unknown, ["--writer", "auto"], written),
        (&unknown, ["--writer", "buffered"], written),
    ] {
        let run = get().args(args).args(["--app-buffer", "1MiB", "-o", "mnt/f", &server.url("/f")]);
        let Some(ended) = mounted(run, "mount -t tmpfs -o size=1m none mnt") else { return };
        assert_eq!(ended.fails(74, &words).stdout, "");
    }
}

#[test]
fn file_larger_than_permitted_is_not_kept() {
    let bytes = content(2 << 20, 2);
    for server in [Server::of(File::new(bytes.clone())), endless(&bytes)] {
        let run = get().args(["--max-size", "1MiB", "-o", "f", &server.url("/f")]);
        run.fails_without_files(65, &["1 MiB of --max-size"]);
        get().args(["--max-size", "2MiB", "-o", "f", &server.url("/f")]).fetches(&bytes);
    }
}

#[test]
fn a_directory_that_cannot_be_written() {
    let server = Server::of(File::new(content(1000, 3)));
    let url = server.url("/f");
    let setup = "mkdir -p mnt && mount -t tmpfs -o ro none mnt";
    for output in ["mnt/f", "mnt/"] {
        let Some(ended) = mounted(get().args(["-o", output, &url]), setup) else { return };
        let ended = ended.fails(73, &["cannot create mnt/f.longhaul-part", "Read-only"]);
        assert_eq!(ended.stdout, "");
    }
    for (output, reason) in [("missing/f", "No such file"), ("file/f", "Not a directory")] {
        let run = get().file("file", "").args(["-o", output, &url]);
        run.run().fails(73, &[&format!("cannot create {output}.longhaul-part"), reason]);
    }
    // All cases except one fail before the first request.
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn file_goes_into_a_directory_that_exists_as_with_cp_and_replaces_nothing() {
    let fields = "Content-Disposition: attachment; filename=\"given\"\r\n".to_owned();
    let file = File { fields, ..File::new(content(1000, 4)) };
    let server = Server::of(file.clone());
    let run = get().file("file", "").file("dir/other/given", "precious");
    fs::create_dir_all(run.path("dir/given")).unwrap();
    // A missing directory is made if its name ends with a slash.
    for (output, path) in
        [("dir/given", "dir/given/given"), (".", "given"), ("new/deeper/", "new/deeper/given")]
    {
        get_into(&run, output, &server).ok();
        same(run.path(path), &file.bytes);
    }
    for (output, word) in [
        ("dir/other", "dir/other/given exists"),
        ("dir", "dir/given: it is a directory"),
        ("file/", "cannot create file/"),
    ] {
        get_into(&run, output, &server).fails(73, &[word]);
    }
    same(run.path("dir/other/given"), b"precious");
    assert_eq!((names(&run.path("dir/other")).len(), names(&run.path("dir")).len()), (1, 2));
}

fn get_into(run: &Get, output: &str, server: &Server) -> Ended {
    run.start_with(|command| command.args(["-o", output, &server.url("/f")])).end()
}

#[test]
fn file_system_that_only_replaces_or_links_overwrites_nothing() {
    let Some(old_kernel) = old_kernel() else { return };
    let file = File::new(content(1000, 12));
    let server = Server::of(file.clone());
    let without = |calls: &[&str]| {
        let words: Vec<&str> = calls.iter().flat_map(|call| ["--without", call]).collect();
        get().args([&server.url("/f")]).through(&[&[old_kernel.as_str()], &words[..]].concat())
    };
    let run = without(&["renameat2"]);
    run.fetches(&file.bytes);
    assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 1);
    fs::write(run.path("f"), "precious").unwrap();
    run.run().fails(73, &["f exists"]);
    let run = without(&["renameat2", "linkat"]);
    run.fails_unnamed(74, &["can neither rename without replacing nor link", "-o"]);
    run.args(["-o", "f"]).run().ok();
}

/// Behaviour before Linux 6.1.
#[test]
fn direct_writer_is_tried_on_a_kernel_that_does_not_tell_of_direct_io() {
    let Some(old_kernel) = old_kernel() else { return };
    let file = File::new(content(5 << 20, 13));
    let server = Server::of(file.clone());
    for url in [server.url("/f"), endless(&file.bytes).url("/f")] {
        let run = get().args(["--json", "--writer", "direct", "-o", "f", &url]);
        let ended = run.through(&[&old_kernel, "--without", "statx"]).fetches(&file.bytes);
        assert_eq!(ended.events("opened")[0]["writer"], "direct");
    }
}

#[test]
fn devices_and_pipes_are_left_alone() {
    let server = Server::of(File::new(content(1000, 5)));
    let run = get();
    let mkfifo = Command::new("mkfifo").arg(run.path("fifo")).status().unwrap();
    assert!(mkfifo.success());
    symlink("/dev/null", run.path("null")).unwrap();
    for (output, named) in
        [("/dev/full", "/dev/full"), ("/dev/stdout", "/dev/stdout"), ("null", "/dev/null"), ("fifo", "fifo")]
    {
        get_into(&run, output, &server).fails(73, &[named, "not a regular file", &format!("-o - >{named}")]);
    }
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(fs::metadata(run.path("fifo")).unwrap().file_type().is_fifo());
    get_into(&run, "./-", &server).ok();
    same(run.path("-"), &content(1000, 5));
}

#[test]
fn links_are_followed_and_kept() {
    let server = Server::of(File::new(content(1000, 6)));
    let run = get().file("there/old", "old").file("victim", "precious");
    let links = [("link", "there/old"), ("broken", "there/new"), ("lost", "nowhere/new"), ("round", "round")];
    for (link, file) in links {
        symlink(file, run.path(link)).unwrap();
    }
    for (link, file) in &links[..2] {
        get_into(&run, link, &server).ok();
        assert!(run.path(link).is_symlink());
        same(run.path(file), &content(1000, 6));
    }
    get_into(&run, "lost", &server).fails(73, &["nowhere/new", "No such file"]);
    get_into(&run, "round", &server).fails(73, &["round", "symbolic links"]);
    // A link in place of the partial file is not followed.
    symlink("victim", run.path("f.longhaul-part")).unwrap();
    get_into(&run, "f", &server).fails(73, &["f.longhaul-part", "a symbolic link", "remove the link"]);
    same(run.path("victim"), b"precious");
}

#[test]
fn odd_names() {
    let server = Server::of(File::new(content(1000, 7)));
    let run = get();
    for name in ["x".repeat(255), "ä\n\u{1b}[2J".to_owned(), " ".to_owned(), "-rf".to_owned()] {
        let ended = get_into(&run, &format!("./{name}"), &server).ok();
        assert!(!ended.stderr.contains("\u{1b}") && ended.stderr.contains("limited by"), "{ended:?}");
        same(run.path(&name), &content(1000, 7));
    }
    let name = OsStr::from_bytes(b"not-\xff-utf8");
    run.start_with(|command| command.arg("-o").arg(name).arg(server.url("/f"))).end().ok();
    same(run.path(name), &content(1000, 7));
    get_into(&run, &"x".repeat(256), &server).fails(73, &["File name too long"]);
    assert_eq!(get_into(&run, "", &server).status.code(), Some(64));
    assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 5, "no partial files");
}

#[test]
fn a_working_directory_that_is_gone() {
    let server = Server::of(File::new(content(1000, 8)));
    for args in [vec!["-o", "f"], vec![]] {
        let run = get().args(args).args([&server.url("/f")]);
        fs::create_dir(run.path("gone")).unwrap();
        let run = run.through(&["sh", "-c", "cd gone && rmdir ../gone && exec \"$@\"", "sh"]);
        run.run().fails(73, &["cannot create", "No such file"]);
    }
}

#[test]
fn a_file_size_limit_is_an_error_and_no_signal() {
    let server = Server::of(File::new(content(3 << 20, 9)));
    let run = get().args(["-o", "f", &server.url("/f")]);
    let run = run.through(&["sh", "-c", "ulimit -f 1000; exec \"$@\"", "sh"]);
    run.fails_without_files(74, &["f.longhaul-part", "File too large"]);
}
