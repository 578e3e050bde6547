use super::*;

const TCP: &str = r#"{"intervals":[
    {"sum":{"start":0,"end":1.0,"seconds":1.0,"bytes":10000000,"bits_per_second":80000000}},
    {"sum":{"start":1.0,"end":2.0,"seconds":1.0,"bytes":12000000,"bits_per_second":96000000}}],
    "end":{"streams":[{"sender":{"min_rtt":10500}}],
    "sum_sent":{"end":2.0,"seconds":2.0,"bytes":22000000,"bits_per_second":88000000,"retransmits":7},
    "sum_received":{"end":2.0,"seconds":2.0,"bytes":22000000,"bits_per_second":88000000}}}"#;

#[test]
fn tcp_rate_is_that_of_the_second_half_or_of_all_received_bytes() {
    let (found, bytes) = parse_tcp(TCP).unwrap();
    assert_eq!((found.payload_bps, found.out_of_order), (Rate::mbit(96), 7));
    assert_eq!((found.seconds, bytes), (Duration::from_secs(2), Bytes::new(22_000_000)));
    // A short upload has the rate of the received bytes.
    let json = r#"{"intervals":[{"sum":{"end":0.1,"seconds":0.1,"bytes":890520,"bits_per_second":71241600}},
        {"sum":{"end":0.17,"seconds":0.067,"bytes":1206632,"bits_per_second":144075462}}],
        "end":{"sum_sent":{"seconds":0.17,"bytes":2097152,"bits_per_second":100597907},
        "sum_received":{"seconds":0.2,"bytes":1335056,"bits_per_second":53916876}}}"#;
    let (found, bytes) = parse_tcp(json).unwrap();
    assert_eq!((found.payload_bps, found.is_flat), (Rate::bits_per_sec(53_916_876), false));
    let most_bps = rate(1_206_632.0 * 8.0 / 0.067);
    assert_eq!(found.range, Some(RateRange { least_bps: found.payload_bps, most_bps }));
    assert_eq!(bytes, Bytes::new(2_097_152));
}

#[test]
fn constant_rate_is_flat() {
    let flat = |intervals: &[(f64, f64)]| {
        let interval = |(seconds, bytes): &(f64, f64)| {
            format!(r#"{{"sum":{{"end":1,"seconds":{seconds},"bytes":{bytes},"bits_per_second":1}}}}"#)
        };
        let all: Vec<_> = intervals.iter().map(interval).collect();
        let end = r#""end":{"sum_received":{"seconds":1,"bytes":1,"bits_per_second":1}}"#;
        parse_tcp(&format!(r#"{{"intervals":[{}],{end}}}"#, all.join(","))).unwrap().0.is_flat
    };
    assert!(flat(&[(0.1, 1e6), (0.1, 9e6), (0.1, 1e7)]));
    assert!(flat(&[(0.1, 9e6), (0.1, 1e7), (0.01, 2e5)]), "the last has just begun");
    for growing in [&[][..], &[(0.1, 1e6)], &[(0.1, 5e6), (0.1, 1e7)], &[(0.1, 0.0), (0.1, 0.0)]] {
        assert!(!flat(growing), "{growing:?}");
    }
}

#[test]
fn udp_loss_is_counted() {
    let json = r#"{"end":{"streams":[{"udp":{"out_of_order":2}}],"sum":{"seconds":1.0,"bytes":1000000,
        "bits_per_second":8000000,"jitter_ms":0.5,"lost_packets":10,"packets":1000,"lost_percent":1}}}"#;
    let (found, loss) = parse_udp(json, Bytes::new(1000)).unwrap();
    assert_eq!((loss.sent, loss.lost, found.reordered), (1000, 10, 2));
    assert_eq!((found.sent_bps, found.payload_bps), (rate(8e6), rate(7.92e6)));
}

#[test]
fn refusals_and_garbage_are_different_errors() {
    let busy = r#"{"start":{},"error":"error - the server is busy running a test. try again later"}"#;
    assert!(matches!(parse_tcp(busy), Err(Iperf3Error::Refused(why)) if why.contains("busy")));
    assert_eq!(parse_tcp(busy).unwrap_err().retry(), Retry::Backoff);
    let reset = r#"{"error":"unable to receive control message: Connection reset by peer"}"#;
    assert_eq!(parse_tcp(reset).unwrap_err().retry(), Retry::Backoff);
    let other = r#"{"error":"unable to set congestion control: No such file or directory"}"#;
    assert_eq!([other, ""].map(|json| parse_tcp(json).unwrap_err().retry()), [Retry::Never; 2]);
    for garbage in ["", "{", "[]", "{}", r#"{"end":{"sum_sent":4}}"#] {
        assert!(matches!(parse_tcp(garbage), Err(Iperf3Error::Failed(_))), "{garbage}");
    }
    assert!(matches!(parse_udp(TCP, Bytes::new(1)), Err(Iperf3Error::Failed(_))));
}
