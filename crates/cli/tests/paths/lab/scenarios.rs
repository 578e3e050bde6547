//! ICDC's and Usadafox's scenarios at a small scale: a tenth of the rate and a shorter delay, so
//! that a slow machine keeps up.

use serde_json::Value;

use crate::lab::measure;
use crate::support::lab::{Scenario, needs_lab, needs_lab_with, ran_in, value};

/// A queue of a quarter of the BDP, where ICDC's switch has a thirtieth: three times the backlog
/// after a pause of a busy machine.
const SMALL: [&str; 6] = ["--set", "path.rate=200M", "--set", "path.rtt=100ms", "--set", "path.queue=600kB"];

#[test]
fn the_pseudo_lfn_in_small() {
    let Some(()) = needs_lab_with(&["mount"]) else { return };
    // A pause of a busy machine may still fill the queue of the paced run.
    let lost = |runs: &[Value]| [0, 1].map(|run: usize| value(&runs[run], "server_retransmits"));
    let is_right = |[unpaced, paced]: [f64; 2]| paced <= unpaced / 10.0 + 50.0;
    let args = [&SMALL[..], &["--set", "size=64M", "--set", "pace=off,160Mbit"]].concat();
    let measured = measure("icdc-1g-pseudo-lfn", &args, |_, runs| is_right(lost(runs)));
    let Some((scenario, runs)) = measured else { return };
    assert!(is_right(lost(&runs)), "lost unpaced and paced: {:?}", lost(&runs));
    for figure in ["averages-off.svg", "averages-160Mbit.svg"] {
        assert!(scenario.read(figure).contains("receiver"), "{figure}");
    }
    assert!(scenario.out("burstiness-by-pace-receiver-and-sender.svg").exists());
}

#[test]
fn the_background_in_small() {
    let Some(()) = needs_lab_with(&["openssl"]) else { return };
    let is_right = |run: &Value| {
        value(run, "background_server_to_client_packets") > 0.0
            && (0.0..1.0).contains(&value(run, "background_server_to_client_loss"))
            && (0.01..2.0).contains(&value(run, "left_share"))
            && value(run, "server_retransmits") >= 0.0
    };
    let few = ["--set", "size=64M", "--set", "path.congestion=cubic"];
    let steps = ["--set", "path.background=0 20%@1500ms 50%@2500ms"];
    let args = [&SMALL[..], &few, &steps].concat();
    let measured = measure("icdc-1g-background", &args, |_, runs| runs.iter().all(is_right));
    let Some((scenario, runs)) = measured else { return };
    assert!(runs.len() == 2 && runs.iter().all(is_right), "{runs:?}");
    assert!(scenario.out("averages-cubic-auto.svg").exists());
}

#[test]
fn memory_to_disk_in_small() {
    let Some(()) = needs_lab_with(&["mount"]) else { return };
    let is_right = |runs: &[Value]| {
        let (mean, least) = (value(&runs[0], "goodput_bps"), value(&runs[0], "least_second_bps"));
        0.0 < mean && mean < 520e6 && least < 550e6 && value(&runs[0], "app_peak_bytes") > 0.0
    };
    let args = ["--only", "to-disk", "--set", "size=192M", "--set", "pace=500Mbit"];
    let Some((_, runs)) = measure("icdc-10g", &args, |_, runs| is_right(runs)) else { return };
    assert!(runs.len() == 1 && is_right(&runs), "paced: {runs:?}");
}

/// The whole reproduction with a small file: source, Apache, transfer, record, table and figures.
#[test]
fn table_2_runs_in_small() {
    let Some(()) = needs_lab_with(&["apache2", "openssl"]) else { return };
    let is_right = |runs: &[Value]| {
        let of_ceiling = value(&runs[0], "steady_bps") / value(&runs[0], "ceiling_bps");
        (1e6..2e7).contains(&value(&runs[0], "rwin_bytes")) && (0.5..1.2).contains(&of_ceiling)
    };
    let args = "--set size=64M --set recv_buffer=4MB --set path.rate=1Gbit --repeat 1";
    let args: Vec<_> = args.split(' ').collect();
    let Some((scenario, runs)) = measure("usadafox-table2", &args, |_, runs| is_right(runs)) else { return };
    assert!(runs.len() == 1 && is_right(&runs), "{runs:?}");
    for file in
        ["goodput-by-socket-buffer.svg", "receive-window-by-socket-buffer.png", "records.html", "summary.md"]
    {
        assert!(scenario.out(file).metadata().unwrap().len() > 0, "{file}");
    }
}

#[test]
fn the_buffers_are_drawn_in_small() {
    let Some(()) = needs_lab_with(&["apache2", "tc"]) else { return };
    let scenario = Scenario::own("usadafox-buffers.toml");
    let runs = scenario.measure(&["--set", "size=64M", "--only", "direct"]);
    assert!(runs.len() == 1 && value(&runs[0], "app_peak_bytes") > 0.0, "{runs:?}");
    assert!(scenario.read("records.html").contains("Application buffer in use"));
}

#[test]
fn results_show_background_traffic() {
    let Some(()) = needs_lab() else { return };
    let scenario = Scenario::new(
        "[path]\nrate = '50Mbit'\nrtt = '10ms'\nack_compression = '1ms'\n\
         [server]\ncommand = 'exec iperf3 --server'\nport = 5201\n\
         [sweep]\n'path.background' = ['0', '0@0s,40%@500ms']\n'path.cross_flows' = [0, '1@100ms..']\n\
         [[run]]\nname = 'one'\ncommand = 'iperf3 -c $LAB_SERVER -R -t 1.5 > /dev/null'\n",
    );
    scenario.run(&["--set", "path.background=0,0 40%@500ms"]).ok();
    let runs = scenario.results();
    assert_eq!(runs.len(), 4);
    for run in &runs {
        for (name, parameter, least) in [
            // 20 Mbit/s are 1667 packets per second, for one second.
            ("background_server_to_client_packets", "path.background", 1000.0),
            ("background_server_to_client_loss", "path.background", 0.0),
            ("cross_goodput_bps", "path.cross_flows", 1e6),
        ] {
            let is_there = run["values"][name].as_f64().is_some_and(|value| value >= least);
            assert_eq!(is_there, run["parameters"][parameter] != "0", "{name}: {run}");
        }
    }
}

#[test]
fn check_reports_the_paths_that_this_machine_holds() {
    let Some(()) = needs_lab() else { return };
    let dir = tempfile::tempdir().unwrap();
    let ended = ran_in(dir.path(), &["lab", "check", "--max-rate", "100Mbit"]);
    let rows: Vec<Vec<&str>> = ended.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let is_held = rows[1].last() != Some(&"NO");
    assert_eq!((rows.len(), ended.status.success()), (2, is_held), "{ended:?}");
    assert_eq!(rows[1][..3], ["100Mbit", "20ms", "1"], "{ended:?}");
    let goodput: f64 = rows[1][4].parse().unwrap();
    assert!(!is_held || (50.0..97.0).contains(&goodput) && rows[1][5] == "Mbit/s", "{ended:?}");
    // 5 % of 10 ms.
    assert!(ended.stdout.contains("0.50 ms"), "{ended:?}");
}
