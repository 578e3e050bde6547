//! What clients ask of pacing, what the server makes of it, and what the socket then does.

use std::io::Read;
use std::time::{Duration, Instant};

use longhaul_core::pace::{PACE_HEADER, Pace};
use longhaul_core::units::Rate;

use crate::site::{Site, noise, skipped};
use crate::uploads::Talk;

/// 4 MiB at 40 Mbit/s take 0.84 s, but the kernel starts with a burst. A busy machine only
/// lengthens it.
const SIZE: usize = 4 << 20;
const AT_40_MBIT: Duration = Duration::from_millis(700);

/// Serves `/large` and `/small` at this pace.
fn site(pace: Pace) -> Site {
    let site = Site::with(|config| config.pacing.pace = pace);
    site.write("large", &noise(SIZE));
    site.write("small", &noise(1 << 10));
    site
}

/// Gets `target` on a connection that stays; returns the pace in force by the reply's head, and how
/// long all of it took.
fn get(talk: &mut Talk, target: &str, pace: Option<&str>) -> (Option<String>, Duration) {
    let pace = pace.map_or_else(String::new, |pace| format!("{PACE_HEADER}: {pace}\r\n"));
    let started = Instant::now();
    talk.send(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n{pace}\r\n"), b"");
    let answer = talk.answer_head();
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut body = vec![0; answer.header("content-length").unwrap().parse().unwrap()];
    talk.0.read_exact(&mut body).unwrap();
    assert!(body == noise(body.len()), "{target} arrived changed");
    (answer.header(PACE_HEADER).map(str::to_owned), started.elapsed())
}

/// Returns what the server says is in force on a large reply, and how long the reply took.
fn large(site: &Site, pace: Option<&str>) -> (Option<String>, Duration) {
    get(&mut Talk::to(site), "/large", pace)
}

#[test]
fn lower_of_the_rates_asked_for_and_configured_is_told_and_held() {
    let rate = |mbit: u64| Pace::Rate(Rate::bits_per_sec(mbit * 1_000_000));
    for (own, asked) in
        [(Pace::Auto, Some("40Mbit")), (rate(40), Some("80Mbit")), (rate(40), Some("off")), (rate(40), None)]
    {
        let site = site(own);
        assert_eq!(get(&mut Talk::to(&site), "/small", asked).0, None, "a short reply is not paced");
        let (told, took) = large(&site, asked);
        assert_eq!(told.as_deref(), Some("40000000"), "asked for {asked:?}");
        assert!(took >= AT_40_MBIT, "asked for {asked:?}: {took:?}");
    }
}

#[test]
fn what_is_no_pace_asks_for_nothing() {
    let ours =
        [(Pace::Auto, "auto"), (Pace::Off, "off"), (Pace::Rate(Rate::bits_per_sec(1 << 33)), "8589934592")];
    for (pace, told) in ours {
        let site = site(pace);
        for asked in ["fast", "0", "-1Mbit", "", "80 parsecs", "99999999999999999999Gbit", "NaN"] {
            assert_eq!(large(&site, Some(asked)).0.as_deref(), Some(told), "asked for {asked:?}");
        }
        assert_eq!(large(&site, None).0.as_deref(), Some(told));
    }
}

/// A rate would bound every reply; a busy machine delays some.
fn is_unbounded(mut try_once: impl FnMut() -> Duration) -> bool {
    (0..20).any(|_| try_once() < AT_40_MBIT / 2)
}

#[test]
fn rate_ends_with_its_reply() {
    let site = site(Pace::Auto);
    for then in ["auto", "off"] {
        let mut talk = Talk::to(&site);
        // Each try is the first reply after a paced one.
        let unbounded = is_unbounded(|| {
            let (told, slow) = get(&mut talk, "/large", Some("40Mbit"));
            assert_eq!(told.as_deref(), Some("40000000"));
            assert!(slow >= AT_40_MBIT, "{slow:?} before {then}");
            let (told, took) = get(&mut talk, "/large", Some(then));
            assert_eq!(told.as_deref(), Some(then));
            took
        });
        assert!(unbounded, "40 Mbit/s outlast their reply, before {then}");
        // And the other way round.
        let (_, slow) = get(&mut talk, "/large", Some("40Mbit"));
        assert!(slow >= AT_40_MBIT, "{slow:?} after {then}");
    }
}

#[test]
fn congestion_control_that_paces_itself_serves_too() {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if !available.split_whitespace().any(|name| name == "bbr") {
        return skipped("this kernel has no bbr loaded");
    }
    let site = Site::with(|config| config.pacing.congestion = Some("bbr".to_owned()));
    site.write("large", &noise(SIZE));
    for (asked, told) in [(None, "auto"), (Some("80Mbit"), "80000000"), (Some("off"), "off")] {
        assert_eq!(large(&site, asked).0.as_deref(), Some(told), "asked for {asked:?}");
    }
}
