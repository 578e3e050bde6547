//! `--initial-window`: the routes of the server. What they do for a transfer is judged in the
//! program `paths`.

use std::process::Command;

use rustix::thread::CapabilitySet;

use crate::serve::long_path::{LongPath, directory, fetch, once, ours, routes, settled};
use crate::serve::{BIN, Serve, get, serve};

#[test]
fn next_server_removes_routes_of_a_killed_one() {
    let Some(path) = LongPath::with_file(6 << 20) else { return };
    let options = ["--pace", "40Mbit", "--initial-window", "30"];
    let mut server = path.serve(&options);
    // A busy machine does not hold the path in each transfer: its rate may stay unknown.
    let mut fetches = 0..40;
    while ours(&routes(&path.server())) == 0 {
        assert!(fetches.next().is_some(), "no route is created");
        fetch(&path.client(), path.addresses()[0], "");
    }
    server.process.signal(rustix::process::Signal::KILL).unwrap();
    server.process.wait().unwrap();
    assert_eq!(ours(&routes(&path.server())), 1, "the route is still there");
    let next = path.serve(&options);
    once(&path.server(), |routes| ours(routes) == 0);
    assert!(next.stop().status.success());
}

#[test]
fn no_route_is_created_by_default() {
    let Some(path) = LongPath::with_file(6 << 20) else { return };
    let before = settled(&path.server());
    let server = path.serve(&["--pace", "40Mbit"]);
    fetch(&path.client(), path.addresses()[0], "");
    server.logged("status=200");
    assert_eq!(routes(&path.server()), before);
}

#[test]
fn without_permission_the_server_starts_with_a_warning() {
    let directory = directory(3 << 20);
    let permitted = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN));
    let plain = serve(directory.path(), &["--initial-window", "auto"]);
    let command = if permitted {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", BIN]).args(plain.get_args());
        command
    } else {
        plain
    };
    let server = Serve::start(command);
    assert!(get(server.address, "/file").len() > 3 << 20);
    let log = server.stop();
    assert_eq!(log.matches("cap_net_admin").count(), 1, "{log}");
}
