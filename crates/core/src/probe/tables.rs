//! The results of a probe as text tables, in the order of the paper.

use std::fmt::Write as _;
use std::time::Duration;

use crate::units::Rate;

use super::packet_train::per_cent;
use super::report::{CeilingSource, MeasuredRate, ProbeReport, TcpRow};
use super::server_limits::ServerLimit;
use super::verdict::{ForecastRange, two_digits};

/// Formats a report.
pub fn text(report: &ProbeReport) -> String {
    let probe = &report.probe;
    let mut out = format!("{} ({})\n", probe.target, probe.peer);
    write_rtt(report, &mut out);
    write_path(report, &mut out);
    write_server(report, &mut out);
    write_udp(report, &mut out);
    write_tcp(&report.tcp, ("TCP streams", "out of order"), &mut out);
    write_upload(report, &mut out);
    for missing in &report.missing {
        line(&mut out, "not measured", missing);
    }
    write_verdict(report, &mut out);
    let _ = writeln!(out, "\n{:.1} s, {} sent and received", probe.seconds.as_secs_f64(), probe.bytes);
    out
}

fn line(out: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "  {name:<14} {value}");
}

fn write_rtt(report: &ProbeReport, out: &mut String) {
    for rtt in &report.rtt {
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let value = format!(
            "min {:.2} ms, median {:.2} ms, jitter {:.2} ms ({}, {} of {})",
            ms(rtt.min.get()),
            ms(rtt.median.get()),
            ms(rtt.jitter),
            rtt.method.name(),
            rtt.answered,
            rtt.sent
        );
        line(out, "RTT", &value);
    }
}

fn write_path(report: &ProbeReport, out: &mut String) {
    let path = &report.path;
    if let Some(found) = path.rate {
        line(out, "path", &describe_rate(found));
    }
    if let Some(queue) = path.queue {
        let least = if queue.is_lower_bound { "at least " } else { "" };
        let delay = queue.delay.as_secs_f64() * 1e3;
        line(out, "queue", &format!("{least}{}, {delay:.1} ms when full", queue.bytes));
    }
    if let Some(loss) = path.loss {
        let reordered = path.reordered.map_or(String::new(), |late| format!("; {late} reordered"));
        let value = format!(
            "{} ({} of {}; with 95 % confidence {} to {}){reordered}",
            per_cent(loss.share),
            loss.lost,
            loss.sent,
            per_cent(loss.least),
            per_cent(loss.most)
        );
        line(out, "loss", &value);
    }
    if let Some(ceiling) = report.udp_ceiling {
        let set_by = match ceiling.set_by {
            CeilingSource::Option => "--ceiling",
            CeilingSource::Server => "the server's ceiling",
            CeilingSource::Tcp => "from TCP's rate",
        };
        line(out, "UDP", &format!("at most {} ({set_by})", ceiling.rate_bps));
    }
    if let Some(mtu) = path.mtu {
        line(out, "path MTU", &format!("{} bytes", mtu.get()));
    }
    if let Some(rtt) = path.loaded_rtt {
        line(out, "loaded RTT", &format!("{rtt} beside a TCP connection"));
    }
}

/// Returns a rate, its bounds if it was not steady, and the method.
fn describe_rate(found: MeasuredRate) -> String {
    let method = found.evidence.name();
    match found.range {
        Some(range) if !found.is_lower_bound => format!("{range} ({method})"),
        _ if found.is_lower_bound => format!("at least {} ({method})", found.rate_bps),
        _ => format!("{} ({method})", found.rate_bps),
    }
}

fn write_server(report: &ProbeReport, out: &mut String) {
    let server = &report.server;
    let software = server.software.as_deref().unwrap_or("unnamed");
    let mut words = vec![format!("{software} ({})", server.protocol)];
    match server.ranges {
        Some(true) => words.push("ranges".to_owned()),
        Some(false) => words.push("no ranges".to_owned()),
        None => {}
    }
    words.extend(server.size.map(|size| format!("file of {size}")));
    words.extend(server.features.iter().cloned());
    if server.measures {
        let ceiling = server.ceiling_bps.map_or_else(String::new, |most| format!(" of at most {most}"));
        words.push(format!("measurement endpoint{ceiling}"));
    }
    if !server.protocol.is_empty() {
        line(out, "server", &words.join(", "));
    }
    if let Some(limit) = server.limit {
        line(out, "limit", &describe(limit));
    }
}

/// Describes a limit.
fn describe(limit: ServerLimit) -> String {
    match limit {
        ServerLimit::SendBuffer { in_flight } => {
            format!("the server's send buffer: {in_flight} in flight a connection")
        }
        ServerLimit::PerConnection { rate } => format!("the server shapes each connection to {rate}"),
        ServerLimit::SendBufferOrRate { in_flight, rate } => format!(
            "the server's send buffer, {in_flight} in flight a connection, or shaping of each connection to {rate}"
        ),
        ServerLimit::ReceiveWindow { window } => format!("this host's receive window, {window}"),
        ServerLimit::Loss => "loss: several connections carry more than one does".to_owned(),
        ServerLimit::Shared => "the path, or a limit that all connections share".to_owned(),
        ServerLimit::AllConnections { rate } => {
            format!("a limit that all connections share: {rate}, far below the path's rate")
        }
        ServerLimit::Ceiling { rate } => format!("the server allows measurements {rate} now"),
        ServerLimit::Growing => "none met: the connections were still growing".to_owned(),
    }
}

fn write_udp(report: &ProbeReport, out: &mut String) {
    if report.udp.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n  {:>12}  {:>12}  {:>12}  {:>9}  {:>9}  limit",
        "UDP message", "payload", "sent at", "loss", "reordered"
    );
    for row in &report.udp {
        let _ = writeln!(
            out,
            "  {:>10} B  {:>12}  {:>12}  {:>9}  {:>9}  {}",
            row.message.get(),
            row.payload_bps.to_string(),
            row.sent_bps.to_string(),
            per_cent(row.loss),
            row.reordered,
            if row.is_path_limited { "path" } else { "sender" }
        );
    }
}

fn write_upload(report: &ProbeReport, out: &mut String) {
    let Some(upload) = &report.upload else { return };
    write_tcp(&upload.tcp, ("upload", "sent again"), out);
    if let Some(found) = upload.rate {
        line(out, "upload path", &describe_rate(found));
    }
}

/// Writes rows; `first` and `last` are the headings of the outer columns.
fn write_tcp(rows: &[TcpRow], (first, last): (&str, &str), out: &mut String) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n  {first:>11}  {:>10}  {:>10}  {:>26}  {:>7}  {last:>12}",
        "buffer", "congestion", "payload", "time"
    );
    for TcpRow { streams, buffer, congestion, payload_bps, seconds, is_flat, range, out_of_order } in rows {
        let _ = writeln!(
            out,
            "  {streams:>11}  {:>10}  {:>10}  {:>26}  {:>5.1} s  {out_of_order:>12}{}",
            buffer.map_or_else(|| "auto".to_owned(), |buffer| buffer.to_string()),
            congestion.as_deref().unwrap_or("default"),
            range.map_or_else(|| payload_bps.to_string(), |range| range.to_string()),
            seconds.as_secs_f64(),
            if *is_flat { "" } else { "  (not steady yet)" }
        );
    }
}

fn write_verdict(report: &ProbeReport, out: &mut String) {
    let verdict = &report.verdict;
    let streams =
        if verdict.streams == 1 { "1 stream".to_owned() } else { format!("{} streams", verdict.streams) };
    let window = verdict.window.map_or(String::new(), |window| format!(", {window} of receive window"));
    let (begin, settings) = match verdict.rate_bps {
        Some(_) if verdict.remembered => ("get will use", format!("{streams}{window}")),
        Some(_) => ("get would use", format!("{streams}{window}; this is not kept for it")),
        None => {
            ("get will use", "what it measures by itself: no throughput was measured to the end".to_owned())
        }
    };
    let _ = writeln!(out, "\n  {begin:<14} {settings}");
    let is_held = report.udp_ceiling.is_some_and(|ceiling| ceiling.is_reached);
    let is_least = is_held || matches!(report.server.limit, Some(ServerLimit::Ceiling { .. }));
    let (most, least) = if is_least { ("at most ", " or more") } else { ("", "") };
    let forecast = |rate: Rate, time: Duration, range: Option<ForecastRange>| match range {
        Some(ForecastRange { rate, most_seconds: Some(time), .. }) if is_least => {
            format!("at most {} s at {} or more", two_digits(time), rate.least_bps)
        }
        Some(range) if !is_least => format!("{range} at {}: no connection was steady yet", range.rate),
        _ => format!("{most}{:.1} s at {rate}{least}", time.as_secs_f64()),
    };
    if let (Some(rate), Some(time)) = (verdict.rate_bps, verdict.seconds) {
        line(out, &format!("{} takes", verdict.size), &forecast(rate, time, verdict.range));
    }
    if let (Some(rate), Some(time)) = (verdict.put.rate_bps, verdict.put.seconds) {
        let value = format!("{}; put of {}", forecast(rate, time, verdict.put.range), verdict.size);
        line(out, "upload takes", &value);
    }
    for (index, arithmetic) in verdict.arithmetic.iter().enumerate() {
        line(out, if index == 0 { "because" } else { "" }, arithmetic);
    }
    for (index, advice) in verdict.advice.iter().enumerate() {
        line(out, if index == 0 { "to change" } else { "" }, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow_rate::RateRange;
    use super::super::packet_train::LossShare;
    use super::super::report::{
        MeasuredQueue, PathFindings, ProbeFacts, RateEvidence, ServerFindings, UdpCeiling, UdpRow,
        UploadFindings,
    };
    use super::super::rtt::{RttMethod, RttSummary};
    use super::super::verdict::{PutForecast, Verdict};
    use super::*;
    use crate::units::{Bytes, Rtt};

    fn report() -> ProbeReport {
        let rate_bps = Rate::mbit(1000);
        let rate = MeasuredRate::new(rate_bps, RateEvidence::UdpTrains, false);
        ProbeReport {
            probe: ProbeFacts {
                target: "http://h/f".to_owned(),
                peer: "192.0.2.1:80".to_owned(),
                seconds: Duration::from_secs(5),
                bytes: Bytes::mib(40),
            },
            rtt: RttSummary::of(RttMethod::Icmp, &[Duration::from_micros(10_500)], 1).into_iter().collect(),
            path: PathFindings { rate: Some(rate), mtu: Some(Bytes::new(1500)), ..PathFindings::default() },
            udp_ceiling: None,
            udp: vec![UdpRow {
                message: Bytes::new(1472),
                payload_bps: Rate::bits_per_sec(688_930_000),
                sent_bps: Rate::mbit(2000),
                loss: 0.0,
                reordered: 0,
                is_path_limited: true,
            }],
            tcp: vec![TcpRow {
                streams: 1,
                buffer: Some(Bytes::mib(2)),
                congestion: Some("cubic".to_owned()),
                payload_bps: Rate::mbit(600),
                seconds: Duration::from_secs(1),
                is_flat: true,
                range: None,
                out_of_order: 3,
            }],
            upload: None,
            server: ServerFindings { protocol: "http".to_owned(), ranges: Some(true), ..Default::default() },
            missing: vec!["ICMP: not permitted".to_owned()],
            verdict: Verdict {
                streams: 1,
                rate_bps: Some(rate_bps),
                size: Bytes::gib(10),
                seconds: Some(Duration::from_secs(86)),
                remembered: true,
                ..Verdict::default()
            },
        }
    }

    #[track_caller]
    fn assert_words(report: &ProbeReport, words: &[&str]) {
        let text = text(report);
        words.iter().for_each(|words| assert!(text.contains(words), "{words} in {text}"));
    }

    /// Makes a report in which every result is known.
    fn whole_report() -> ProbeReport {
        let report = report();
        let delay = Duration::from_millis(20);
        let queue = Some(MeasuredQueue { bytes: Bytes::kib(2441), delay, is_lower_bound: true });
        let range = Some(RateRange { least_bps: Rate::mbit(40), most_bps: Rate::mbit(60) });
        let slow = TcpRow {
            streams: 8,
            buffer: None,
            congestion: None,
            is_flat: false,
            range,
            ..report.tcp[0].clone()
        };
        let [tcp, sent] = [Rate::mbit(600), Rate::mbit(50)].map(|payload_bps| {
            vec![TcpRow { payload_bps, ..report.tcp[0].clone() }, TcpRow { payload_bps, ..slow.clone() }]
        });
        let rate =
            Some(MeasuredRate { range, ..MeasuredRate::new(Rate::mbit(40), RateEvidence::TcpBursts, false) });
        let put = PutForecast {
            rate_bps: Some(Rate::mbit(48)),
            seconds: Some(Duration::from_secs(1790)),
            range: None,
        };
        ProbeReport {
            path: PathFindings {
                queue,
                loss: Some(LossShare::new(10_000, 100)),
                reordered: Some(3),
                loaded_rtt: Some(Rtt::new(Duration::from_millis(31))),
                ..report.path
            },
            udp_ceiling: Some(UdpCeiling::lower(None, Rate::mbit(4000), CeilingSource::Tcp)),
            tcp,
            upload: Some(UploadFindings { tcp: sent, rate }),
            server: ServerFindings {
                software: Some("nginx/1.22.1".to_owned()),
                size: Some(Bytes::gib(2)),
                features: vec!["keeps connections".to_owned()],
                measures: true,
                tcp_wmem_max: Some(Bytes::mib(4)),
                ceiling_bps: Some(Rate::mbit(40_000)),
                allowed_bps: Some(Rate::mbit(40_000)),
                limit: Some(ServerLimit::SendBuffer { in_flight: Bytes::kib(2800) }),
                ..report.server
            },
            verdict: Verdict {
                window: Some(Bytes::mib(2)),
                put,
                arithmetic: vec!["1.00 Gbit/s x 10.5 ms = 1.3 MB in flight".to_owned()],
                advice: vec!["raise the server's tcp_wmem".to_owned(), "use more streams".to_owned()],
                ..report.verdict
            },
            ..report
        }
    }

    #[test]
    fn every_result_is_in_the_text_and_numbers_are_plain_in_json() {
        insta::assert_snapshot!("text", text(&whole_report()));
        insta::assert_snapshot!("json", serde_json::to_string_pretty(&whole_report()).unwrap());
    }

    #[test]
    fn each_limit_of_a_server_has_its_words() {
        let (in_flight, rate) = (Bytes::mib(2), Rate::mbit(100));
        let limits = [
            ServerLimit::SendBuffer { in_flight },
            ServerLimit::PerConnection { rate },
            ServerLimit::SendBufferOrRate { in_flight, rate },
            ServerLimit::ReceiveWindow { window: in_flight },
            ServerLimit::Loss,
            ServerLimit::Shared,
            ServerLimit::AllConnections { rate },
            ServerLimit::Ceiling { rate },
            ServerLimit::Growing,
        ];
        insta::assert_snapshot!("limits", limits.map(describe).join("\n"));
    }

    #[test]
    fn upload_has_a_table_and_its_forecast() {
        let tcp = vec![TcpRow { out_of_order: 77, ..report().tcp[0].clone() }];
        let rate_bps = Rate::mbit(50);
        let rate = MeasuredRate::new(rate_bps, RateEvidence::TcpBursts, false);
        let upload = Some(UploadFindings { tcp: tcp.clone(), rate: Some(rate) });
        let seconds = Some(Duration::from_secs(99));
        let put = PutForecast { rate_bps: Some(rate_bps), seconds, range: None };
        let verdict = Verdict { put, ..report().verdict };
        let words = ["sent again", "77", "50.0 Mbit/s (TCP bursts)", "99.0 s at 50.0 Mbit/s; put of 10 GiB"];
        assert_words(&ProbeReport { upload, verdict: verdict.clone(), ..report() }, &words);
        // What was not steady has bounds.
        let range = RateRange { least_bps: Rate::mbit(40), most_bps: Rate::mbit(60) };
        let (least_seconds, most_seconds) =
            (Duration::from_millis(1_431_678), Some(Duration::from_millis(2_147_678)));
        let put =
            PutForecast { range: Some(ForecastRange { rate: range, least_seconds, most_seconds }), ..put };
        let tcp = vec![TcpRow { range: Some(range), ..tcp[0].clone() }];
        let upload = Some(UploadFindings { tcp, rate: Some(MeasuredRate { range: Some(range), ..rate }) });
        let report = ProbeReport { upload, verdict: Verdict { put, ..verdict }, ..report() };
        let words =
            ["40.0 Mbit/s to 60.0 Mbit/s (TCP bursts)", "1400 to 2100 s at 40.0 Mbit/s to 60.0 Mbit/s:"];
        assert_words(&report, &words);
        let json = &serde_json::to_value(&report).unwrap()["verdict"]["put_range"];
        assert!(json["least_bps"] == 40_000_000 && json["most_seconds"] == 2147.678, "{json}");
    }

    #[test]
    fn ceilings_are_stated_and_make_the_forecast_a_bound() {
        let limit = Some(ServerLimit::Ceiling { rate: Rate::mbit(100) });
        let server = ServerFindings { limit, ..report().server };
        let words =
            ["the server allows measurements 100 Mbit/s now", "at most 86.0 s at 1.00 Gbit/s or more"];
        assert_words(&ProbeReport { server, ..report() }, &words);
        let gbit = |gbit: u64| Rate::mbit(gbit * 1000);
        let lowest = |option| UdpCeiling::lower(Some(gbit(option)), gbit(40), CeilingSource::Server);
        let with = |udp_ceiling| ProbeReport { udp_ceiling: Some(udp_ceiling), ..report() };
        let words = ["UDP            at most 40.0 Gbit/s (the server's ceiling)", " 86.0 s at 1.00 Gbit/s\n"];
        assert_words(&with(lowest(50)), &words);
        let own = lowest(1);
        assert!(own.limits(Rate::mbit(900)) && !own.limits(Rate::mbit(800)));
        let held = with(UdpCeiling { is_reached: true, ..own });
        let words =
            ["UDP            at most 1.00 Gbit/s (--ceiling)", "at most 86.0 s at 1.00 Gbit/s or more"];
        assert_words(&held, &words);
    }

    #[test]
    fn loss_is_an_estimate_with_its_interval() {
        let loss = Some(LossShare::new(10_000, 100));
        let report =
            ProbeReport { path: PathFindings { loss, reordered: Some(3), ..report().path }, ..report() };
        let words = "loss           1 % (100 of 10000; with 95 % confidence 0.823 % to 1.21 %); 3 reordered";
        assert_words(&report, &[words]);
        let json = &serde_json::to_value(&report).unwrap()["path"]["loss"];
        assert!(json["share"] == 0.01 && json["lost"] == 100 && json["sent"] == 10_000, "{json}");
        assert!(json["least"].as_f64().unwrap() < 0.01 && json["most"].as_f64().unwrap() > 0.01, "{json}");
    }

    #[test]
    fn settings_are_named_only_if_they_are_known_and_kept() {
        let shown = |verdict| text(&ProbeReport { verdict, ..report() });
        let unknown = shown(Verdict { streams: 1, ..Verdict::default() });
        assert!(unknown.contains("get will use   what it measures"), "{unknown}");
        assert!(!unknown.contains("1 stream"), "{unknown}");
        let lost = shown(Verdict { remembered: false, ..report().verdict });
        assert!(lost.contains("get would use  1 stream; this is not kept"), "{lost}");
        assert!(!lost.contains("get will use"), "{lost}");
    }
}
