use super::super::report::{
    MeasuredQueue, MeasuredRate, PathFindings, RateEvidence, ServerFindings, UploadFindings,
};
use super::super::rtt::{RttMethod, RttSummary};
use super::*;
use crate::probe::packet_train::LossShare;

fn path(mbit: u64) -> PathFindings {
    let rate_bps = Rate::mbit(mbit);
    let rate = MeasuredRate::new(rate_bps, RateEvidence::UdpTrains, false);
    PathFindings { rate: Some(rate), mtu: Some(Bytes::new(1500)), ..PathFindings::default() }
}

fn row(streams: u32, mbit: u64) -> TcpRow {
    TcpRow { streams, payload_bps: Rate::mbit(mbit), is_flat: true, ..TcpRow::default() }
}

fn range(least: u64, most: u64) -> RateRange {
    RateRange { least_bps: Rate::mbit(least), most_bps: Rate::mbit(most) }
}

/// A path of 100 ms, and rates of streams.
fn report(path: PathFindings, tcp: &[TcpRow]) -> ProbeReport {
    ProbeReport {
        rtt: RttSummary::of(RttMethod::Icmp, &[Duration::from_millis(100)], 1).into_iter().collect(),
        path,
        tcp: tcp.to_vec(),
        server: ServerFindings { limit: Some(ServerLimit::Shared), ..ServerFindings::default() },
        ..ProbeReport::default()
    }
}

/// Concludes what is found about a file of 1 GiB.
fn conclude(report: &ProbeReport) -> Verdict {
    super::conclude(report, Some(Bytes::gib(1)), Bytes::gib(1))
}

/// Concludes what a path of 1 Gbit/s, a server's limit and measured rates of streams mean.
fn concluded(limit: ServerLimit, tcp: &[TcpRow]) -> Verdict {
    let mut report = report(path(1000), tcp);
    report.server.limit = Some(limit);
    conclude(&report)
}

#[track_caller]
fn assert_words(lines: &[String], words: &str) {
    assert!(lines.iter().any(|line| line.contains(words)), "{words}: {lines:?}");
}

#[test]
fn one_stream_fills_a_path_that_nothing_else_limits() {
    let verdict = concluded(ServerLimit::Shared, &[row(1, 940)]);
    let rate = verdict.rate_bps.unwrap().as_bits_per_sec();
    assert!((900_000_000..970_000_000).contains(&rate), "{rate}");
    // 1 GiB at 917 Mbit/s takes 9.4 s; slow start to 12 MB ten or eleven round trips.
    let seconds = verdict.seconds.unwrap().as_secs_f64();
    assert!((10.0..11.5).contains(&seconds), "{seconds}");
    assert!(verdict.streams == 1 && verdict.advice.is_empty(), "{verdict:?}");
}

#[test]
fn capped_send_buffer_needs_streams_and_a_larger_tcp_wmem() {
    let limit = ServerLimit::SendBuffer { in_flight: Bytes::new(4_000_000) };
    let verdict = concluded(limit, &[row(1, 320), row(4, 900)]);
    assert_eq!(verdict.streams, 3);
    assert_words(&verdict.advice, "tcp_wmem");
    assert_words(&verdict.arithmetic, "send buffer");
    // A rate that may be shaping as well needs both.
    let rate = Rate::mbit(40);
    let limit = ServerLimit::SendBufferOrRate { in_flight: Bytes::new(250_000), rate };
    let verdict = concluded(limit, &[row(1, 40), row(4, 160)]);
    let [advice] = &verdict.advice[..] else { panic!("{verdict:?}") };
    assert_eq!(verdict.streams, 16);
    assert!(advice.contains("limit_rate") && advice.contains("tcp_wmem"), "{verdict:?}");
}

#[test]
fn limit_of_all_connections_or_of_the_only_one_is_the_rate_of_a_transfer() {
    let (all, one) = (Rate::mbit(110), Rate::mbit(100));
    let verdict = concluded(ServerLimit::AllConnections { rate: all }, &[row(1, 100), row(4, 110)]);
    assert_eq!((verdict.streams, verdict.rate_bps), (1, Some(all)));
    let mut single = report(path(1000), &[row(1, 100)]);
    single.server.limit = Some(ServerLimit::PerConnection { rate: one });
    single.server.ranges = Some(false);
    let verdict = conclude(&single);
    assert_eq!((verdict.streams, verdict.rate_bps), (1, Some(one)));
}

#[test]
fn window_loss_and_short_queue_give_advice() {
    let loss = Some(LossShare::new(10_000, 100));
    let (bytes, delay) = (Bytes::new(1_000_000), Duration::from_millis(8));
    let queue = Some(MeasuredQueue { bytes, delay, is_lower_bound: false });
    let path = PathFindings { loss, queue, ..path(1000) };
    let verdict = super::conclude(&report(path, &[]), Some(Bytes::mib(6)), Bytes::gib(1));
    ["tcp_rmem", "bbr", "pace"].iter().for_each(|word| assert_words(&verdict.advice, word));
    // MSS 1448, RTT 100 ms, loss 1 %: 116 kbit/s x 12.2.
    let ceiling = loss_ceiling(Rtt::new(Duration::from_millis(100)), 0.01).unwrap().as_bits_per_sec();
    assert!((1_400_000..1_430_000).contains(&ceiling), "{ceiling}");
    assert_eq!(loss_ceiling(Rtt::default(), 0.01), None);
}

#[test]
fn ceilings_of_the_endpoint_and_of_the_user_are_named() {
    let rate = Rate::mbit(100);
    let mut limited = report(path(100), &[row(1, 95)]);
    limited.server.limit = Some(ServerLimit::Ceiling { rate });
    let verdict = conclude(&limited);
    assert_words(&verdict.arithmetic, "allows measurements 100 Mbit/s now");
    assert_words(&verdict.advice, "--measure=RATE");
    // The user's ceiling is named where it set the rate.
    let ceiling = UdpCeiling { rate_bps: rate, set_by: CeilingSource::Option, is_reached: true };
    for (ceiling, about_it) in [
        (ceiling, 2),
        (UdpCeiling { set_by: CeilingSource::Server, ..ceiling }, 0),
        (UdpCeiling { is_reached: false, ..ceiling }, 0),
    ] {
        let verdict = conclude(&ProbeReport { udp_ceiling: Some(ceiling), ..report(path(100), &[]) });
        let lines = verdict.arithmetic.iter().chain(&verdict.advice);
        assert_eq!(lines.filter(|line| line.contains("--ceiling")).count(), about_it, "{ceiling:?}");
        if about_it > 0 {
            assert_words(&verdict.advice, "raise or leave out --ceiling (now 100 Mbit/s)");
        }
    }
}

#[test]
fn put_is_limited_by_the_upload_direction() {
    let with = |upload| conclude(&ProbeReport { upload: Some(upload), ..report(path(1000), &[row(1, 940)]) });
    let rate_bps = Rate::mbit(20);
    let rate = MeasuredRate::new(rate_bps, RateEvidence::TcpBursts, false);
    let verdict = with(UploadFindings { tcp: vec![row(1, 18)], rate: Some(rate) });
    assert_eq!(verdict.put.rate_bps, Some(Rate::mbit(18)));
    // 1 GiB at 18 Mbit/s.
    let seconds = verdict.put.seconds.unwrap().as_secs_f64();
    assert!((477.0..479.0).contains(&seconds), "{seconds}");
    let rate = Some(MeasuredRate { range: Some(range(20, 25)), ..rate });
    let growing = UploadFindings { tcp: vec![TcpRow { is_flat: false, ..row(1, 5) }], rate };
    let verdict = with(growing);
    let rate = verdict.put.rate_bps.unwrap().as_bits_per_sec();
    assert!((18_000_000..19_000_000).contains(&rate), "{rate}");
    // 1 GiB at 18 and at 24 Mbit/s.
    assert_eq!(verdict.put.range.unwrap().to_string(), "360 to 470 s");
    assert_words(&verdict.arithmetic, "put, 1 GiB: 1 GiB / (18.3 Mbit/s to 24.1 Mbit/s)");
    let stalled = TcpRow { is_flat: false, out_of_order: 9, range: Some(range(0, 24)), ..row(1, 5) };
    let stalled = with(UploadFindings { tcp: vec![stalled], rate: None });
    assert_words(&stalled.arithmetic, "put, 1 GiB: 1 GiB / (up to 24.0 Mbit/s) + 0.4 s");
    assert_eq!(stalled.put.range.unwrap().to_string(), "at least 360 s");
    assert!(verdict.seconds.unwrap() < Duration::from_secs(12), "download is not affected");
}

#[test]
fn without_a_path_rate_the_best_throughput_counts() {
    let growing_on = |tcp: &[TcpRow]| {
        let mut report = report(PathFindings::default(), tcp);
        report.server.limit = Some(ServerLimit::Growing);
        conclude(&report)
    };
    let verdict = growing_on(&[row(1, 100), row(4, 300)]);
    assert_eq!((verdict.streams, verdict.rate_bps), (4, Some(Rate::mbit(300))));
    assert_eq!(verdict.range, None);
    let verdict = growing_on(&[TcpRow { is_flat: false, range: Some(range(200, 600)), ..row(4, 300) }]);
    assert_eq!(verdict.range.unwrap().rate, range(300, 600));
    let nothing = conclude(&ProbeReport::default());
    assert_eq!((nothing.rate_bps, nothing.seconds), (None, None));
}
