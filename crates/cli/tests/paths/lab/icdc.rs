//! ICDC's scenarios at a small scale: a tenth of the rate and a shorter delay, so that a slow machine keeps up.

use serde_json::Value;

use crate::lab::command::text;
use crate::lab::own_scenarios::{data_of, own_scenario, skipped_servers};
use crate::lab::scenario::Scenario;

/// A queue of a quarter of the BDP, where ICDC's switch has a thirtieth: three times the backlog after a pause of a busy machine.
const SMALL: [&str; 6] = ["--set", "path.rate=200M", "--set", "path.rtt=100ms", "--set", "path.queue=600kB"];

fn run(scenario: &Scenario, args: &[&str]) -> Vec<Value> {
    let output = scenario.run(args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let runs = scenario.results();
    assert!(runs.iter().all(|run| run["remarks"].as_array().is_some_and(Vec::is_empty)), "{runs:?}");
    runs
}

fn value(run: &Value, name: &str) -> f64 {
    run["values"][name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"))
}

fn cleaned_up(scenario: &Scenario) {
    for left in ["file", "progress"] {
        assert!(!scenario.out(left).exists(), "{left}");
    }
    assert!(!data_of(scenario).exists(), "nothing stays mounted");
}

#[test]
fn the_pseudo_lfn_in_small() {
    if skipped_servers(&["mount"]) {
        return;
    }
    let scenario = own_scenario("icdc-1g-pseudo-lfn.toml");
    let runs = run(&scenario, &[&SMALL[..], &["--set", "size=64M", "--set", "pace=off,160Mbit"]].concat());
    let [unpaced, paced] = &runs[..] else { panic!("{runs:?}") };
    // A pause of a busy machine may still fill the queue of the paced run.
    let [unpaced, paced] = [unpaced, paced].map(|run| value(run, "server_retransmits"));
    assert!(paced <= unpaced / 10.0 + 50.0, "{paced} lost paced, {unpaced} not");
    for figure in ["averages-off.svg", "averages-160Mbit.svg"] {
        assert!(scenario.read(figure).contains("receiver"), "{figure}");
    }
    assert!(scenario.out("burstiness-by-pace-receiver-and-sender.svg").exists());
    cleaned_up(&scenario);
}

#[test]
fn the_background_in_small() {
    if skipped_servers(&["openssl"]) {
        return;
    }
    let scenario = own_scenario("icdc-1g-background.toml");
    let few = ["--set", "size=64M", "--set", "path.congestion=cubic"];
    let steps = ["--set", "path.background=0 20%@1500ms 50%@2500ms"];
    let runs = run(&scenario, &[&SMALL[..], &few, &steps].concat());
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert!(value(run, "background_server_to_client_packets") > 0.0, "{run}");
        assert!((0.0..1.0).contains(&value(run, "background_server_to_client_loss")), "{run}");
        assert!((0.01..2.0).contains(&value(run, "left_share")), "{run}");
        assert!(value(run, "server_retransmits") >= 0.0, "{run}");
    }
    assert!(scenario.out("averages-cubic-auto.svg").exists());
    cleaned_up(&scenario);
}

#[test]
fn memory_to_disk_in_small() {
    if skipped_servers(&["mount"]) {
        return;
    }
    let scenario = own_scenario("icdc-10g.toml");
    let runs = run(&scenario, &["--only", "to-disk", "--set", "size=192M", "--set", "pace=500Mbit"]);
    assert_eq!(runs.len(), 1);
    let (mean, least) = (value(&runs[0], "goodput_bps"), value(&runs[0], "least_second_bps"));
    assert!(0.0 < mean && mean < 520e6 && least < 550e6, "paced: {mean} and {least}");
    assert!(value(&runs[0], "app_peak_bytes") > 0.0, "{}", runs[0]);
    cleaned_up(&scenario);
}
