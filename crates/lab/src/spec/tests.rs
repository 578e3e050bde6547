//! The values of a path: which texts are read, how values are shown, and what is refused.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use serde_json::json;

use super::*;

/// Checks how each text is shown, and that the shown form is read as the same value.
fn assert_shown<T: FromStr<Err: Debug> + Display + PartialEq + Debug>(cases: &[(&str, &str)]) {
    for (text, shown) in cases {
        let value: T = text.parse().unwrap();
        assert_eq!((value.to_string().as_str(), shown.parse().unwrap()), (*shown, value), "{text}");
    }
}

fn parsed<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

impl PathSpec {
    /// Reads settings such as `rate=1Gbit; rtt=20ms`.
    pub(crate) fn of(settings: &str) -> Self {
        Self::default().with(settings)
    }

    /// Reads further settings.
    pub(crate) fn with(mut self, settings: &str) -> Self {
        let settings = settings.split("; ").filter(|setting| !setting.is_empty());
        for (key, value) in settings.map(|setting| setting.split_once('=').unwrap()) {
            self.set(key, value).unwrap();
        }
        self
    }
}

#[test]
fn texts_are_read_and_shown() {
    assert_shown::<Aqm>(&[
        ("droptail", "droptail"),
        ("red", "red:min_th=5,max_th=15,max_p=0.1,w_q=0.002,gentle=yes"),
        ("red:max_th=60,min_th=20", "red:min_th=20,max_th=60,max_p=0.1,w_q=0.002,gentle=yes"),
        ("red max_p=0.02  gentle=no", "red:min_th=5,max_th=15,max_p=0.02,w_q=0.002,gentle=no"),
        ("red: w_q=1e-3", "red:min_th=5,max_th=15,max_p=0.1,w_q=0.001,gentle=yes"),
        ("codel", "codel:target=0.005s,interval=0.1s"),
        ("fq_codel:flows=8,target=2ms", "fq_codel:target=0.002s,interval=0.1s,flows=8"),
    ]);
    let changing = "0@0s,20%@8s,500000000@16.5s";
    assert_shown::<BackgroundSteps>(&[
        ("200Mbit", "200000000@0s"),
        ("12.5%", "12.5%@0s"),
        ("0@0s,20%@8s,500M@16500ms", changing),
        ("0  20%@8s, 500Mbit@16.5s", changing),
    ]);
    let flows = [("0", "0"), ("4", "4"), ("4@5s..", "4@5s.."), ("4@500ms..20s", "4@0.5s..20s")];
    assert_shown::<CrossFlows>(&flows);
    assert_shown::<GeModel>(&[
        ("0.1%,10%", "0.001,0.1,1,0"),
        ("0.001 0.1 0.5", "0.001,0.1,0.5,0"),
        ("0.2, 0.5, 30%, 0.01", "0.2,0.5,0.3,0.01"),
        ("25%", "0.25,0.75,1,0"),
        ("none", "none"),
    ]);
    assert_shown::<Overrides>(&[("rate=10Mbit;delay=5ms; loss=1%", "rate=10Mbit; delay=5ms; loss=1%")]);
    assert_shown::<PacketShare>(&[
        ("0.1%", "0.1%"),
        ("5 %", "5%"),
        ("100%", "100%"),
        ("0", "0%"),
        ("0.01", "1%"),
        ("1e-4", "0.01%"),
    ]);
    let pairs = [("10ms,50ms@first 30ms@second", "0.01s,0.05s@first,0.03s@second"), ("none", "none")];
    assert_shown::<Pairs>(&pairs);
    let limits = [("100p", "100 packets"), (" 100 packets", "100 packets"), ("1packet", "1 packets")];
    assert_shown::<QueueLimit>(&limits);
    assert_shown::<RateSchedule>(&[("100Mbit,0@8s 20Mbit@9s", "100000000@0s,0@8s,20000000@9s")]);
    assert_shown::<Reorder>(&[("1%,5ms", "1%,0.005s"), ("none", "none")]);
}

#[test]
fn values_mean_what_is_shown() {
    let on = parsed::<BackgroundSteps>("12.5%,20%@8s,500M@16500ms").on(Rate::bits_per_sec(1_000_000_000));
    let on: Vec<_> = on.iter().map(|(from, rate)| (from.as_secs_f64(), rate.as_bits_per_sec())).collect();
    assert_eq!(on, [(0.0, 125_000_000), (8.0, 200_000_000), (16.5, 500_000_000)]);
    for (text, is_none) in [("0,0%@3s", true), ("0,1%@3s", false)] {
        assert_eq!(parsed::<BackgroundSteps>(text).is_none(), is_none, "{text}");
    }
    assert!(BackgroundSteps::default().is_none());
    let times = CrossFlows { count: 4, from: Duration::from_millis(500), to: Some(Duration::from_secs(20)) };
    assert_eq!(parsed::<CrossFlows>("4@500ms..20s"), times);
    assert!((parsed::<GeModel>("25%").mean_loss() - 0.25).abs() < 1e-12);
    assert!(GeModel::default().is_none() && parsed::<GeModel>("0,1").is_none());
    assert_eq!(parsed::<Pairs>("10ms,50ms@first").delays(Duration::ZERO)[1], Duration::from_millis(25));
    assert_eq!(parsed::<QueueLimit>("250MB"), QueueLimit::Bytes(Bytes::new(250_000_000)));
    assert_eq!(parsed::<QueueLimit>("100packets"), QueueLimit::Packets(100));
    assert_eq!(parsed::<RateSchedule>("100Mbit,0@8s 20Mbit@9s").nominal(), "100Mbit".parse().ok());
    let reorder: Reorder = parsed("1%,5ms");
    assert_eq!((reorder.share.get(), reorder.by), (0.01, Duration::from_millis(5)));
    assert_eq!(Reorder::default().to_string(), "none");
}

#[test]
fn every_key_sets_its_value() {
    let trace = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&trace, "1\n").unwrap();
    let trace = trace.path().to_str().unwrap();
    let mut spec = PathSpec::default();
    #[rustfmt::skip]
    let texts = [
        "10Gbit", "100ms", "100ms", "1000packets", "1%", "0.1%,10%", "red:max_p=0.02", "20%@8s", "4@5s..20s", "5ms", "tuned",
        "bbr", "7", "9000", "1Mbit@0s,2Mbit@5s", trace, "1ms", "1%,2ms", "2%", "3%", "yes", "rate=1Mbit", "loss=1%",
        "rate=2Mbit", "10ms,20ms@first",
    ];
    for (key, text) in PathSpec::KEYS.split(", ").zip(texts) {
        spec.set(key, text).unwrap();
    }
    assert_eq!(
        serde_json::to_value(&spec).unwrap(),
        json!({
            "rate_bps": 10_000_000_000_u64, "rtt_s": 0.2, "queue_bytes": null, "queue_packets": 1000, "loss": 0.01,
            "gemodel": "0.001,0.1,1,0", "aqm": "red:min_th=5,max_th=15,max_p=0.02,w_q=0.002,gentle=yes",
            "background": "20%@8s", "cross_flows": "4@5s..20s", "ack_compression_s": 0.005, "hosts": "tuned",
            "congestion": "bbr", "seed": 7, "mtu_bytes": 9000, "rate_schedule": format!("trace {trace}"),
            "jitter_s": 0.001, "reorder": "1%,0.002s", "duplicate": 0.02, "corrupt": 0.03, "ecn": true,
            "up": "rate=1Mbit", "down": "loss=1%", "second": "rate=2Mbit", "pairs": "0.01s,0.02s@first"
        })
    );
}

/// A key, and a part of all its errors.
struct ErrorsOf(&'static str, &'static str);

impl ErrorsOf {
    /// Checks that each error starts with the key, names the problem, and shows how the value is
    /// written.
    fn name(self, cases: &[(&str, &str)]) {
        let Self(key, hint) = self;
        for (text, expected) in cases {
            let error = PathSpec::default().set(key, text).unwrap_err().to_string();
            let is_named = error.starts_with(&format!("{key}: ")) && error.contains(hint);
            assert!(is_named && error.contains(expected), "{key} {text}: {error}");
        }
    }
}

#[test]
fn errors_name_key_problem_and_alternatives() {
    let many_pairs = vec!["1ms"; 65].join(",");
    ErrorsOf("aqm", "as in red:min_th=5,max_th=15").name(&[
        ("", "nothing stands there"),
        ("pie", "'pie' is no way to choose what to drop: 'pie' is not one of droptail, red, codel, fq_codel"),
        ("RED", "'RED' is not one of droptail, red"),
        ("codel:flows=3", "codel has no 'flows'; it has target, interval"),
        ("codel:target=5", "target: '5' is not a time"),
        ("codel:target=0s", "target of 0s is not above 0"),
        ("fq_codel:flows=0", "flows: '0' is not a number from 1"),
        ("droptail:min_th=5", "droptail has no parameters, and 'min_th=5' is one"),
        ("red:min_th", "'min_th' has no '='"),
        ("red:min_th=few", "min_th: 'few' is not a number"),
        ("red:thresh=5", "red has no 'thresh'; it has min_th"),
        ("red:gentle=1", "gentle: '1' is neither yes nor no"),
    ]);
    ErrorsOf("background", "200Mbit, 20%, or 0@0s,20%@8s,50%@16s").name(&[
        ("", "nothing stands there"),
        (",", "nothing stands there"),
        ("much", "'much' is no background traffic: 'much' is not a rate"),
        ("20%@8", "'8' is not a time"),
        ("20%@", "is not a time"),
        ("101%", "101% is not between 0% and 100%"),
        ("NaN%", "NaN% is not between"),
        ("-1%", "-1% is not between"),
        ("0@8s,20%@8s", "8s does not come after 8s"),
        ("20%,0", "does not come after"),
    ]);
    ErrorsOf("cross_flows", "as in 4, 4@5s..20s").name(&[
        ("", "'' are no cross flows: '' is not a number of flows"),
        ("-1", "'-1' is not a number of flows"),
        ("70000", "'70000' is not a number of flows"),
        ("4@5s", "'5s' has no '..' between two times"),
        ("4@..20s", "'' is not a time"),
        ("4@5..20s", "'5' is not a time"),
        ("4@5s..5s", "5s does not come after 5s"),
    ]);
    ErrorsOf("gemodel", "as in 0.1%,10%").name(&[
        ("", "nothing stands there"),
        ("some", "'some' is no loss model: 'some' is not a number"),
        ("1.5,0.1", "1.5 is not between 0 and 1"),
        ("-1%,0.1", "-1% is not between 0 and 1"),
        ("nan,0.1", "nan is not between 0 and 1"),
        ("0.1,0.1,1,0,0", "5 probabilities are more than four"),
    ]);
    ErrorsOf("loss", "is no share of packets: ").name(&[
        ("0.05", "write 5% for this share, or 0.05%"),
        ("0.3", "write 30% for this share, or 0.3%"),
        ("2", "write 2%"),
        ("101%", "not between 0% and 100%"),
        ("-1%", "not between 0% and 100%"),
        ("nan", "not between 0% and 100%"),
        ("some", "write one like 0.1%"),
        ("", "write one like 0.1%"),
    ]);
    ErrorsOf("up", "as in rate=10Mbit").name(&[
        ("rate", "'rate' has no '='"),
        ("seed=1", "'seed' is not one of rate, "),
        ("rtt=1ms", "'rtt' is not one of"),
        ("rate=fast", "'fast' is not a rate"),
    ]);
    ErrorsOf("pairs", "").name(&[
        ("10", "'10' is not a time"),
        ("1ms@third", "'third' is neither"),
        ("61s", "above one minute"),
        (&many_pairs, "65 are above 64"),
    ]);
    ErrorsOf("queue", "")
        .name(&["p", "packets", "-1p", "1.5packets", "10 packs", "many", ""].map(|text| (text, text)));
    ErrorsOf("rate_steps", "is no schedule of rates: ").name(&[
        ("", "write rates and times"),
        ("fast@1s", "'fast' is not a rate"),
        ("1Mbit@soon", "'soon' is not a time"),
        ("1Mbit@2s,2Mbit@1s", "1s does not come after 2s"),
        ("1Mbit,0@3s", "the last rate is 0"),
    ]);
    ErrorsOf("reorder", "").name(&[
        ("1%", "it has not two values"),
        ("5,5ms", "write 5%"),
        ("1%,5", "'5' is not a time"),
    ]);
    ErrorsOf("rtt", "'20' is not a time: write a unit").name(&[("20", "")]);
    ErrorsOf("rate", "'fast' is not a rate").name(&[("fast", "")]);
    ErrorsOf("seed", "'-1' is not a number").name(&[("-1", "")]);
    ErrorsOf("ecn", "'maybe' is neither yes nor no").name(&[("maybe", "")]);
    ErrorsOf("trace", "is no schedule of rates")
        .name(&[("/does/not/exist", "No such file"), ("/dev/zero", "it is no file")]);
    ErrorsOf("ack_compression", "'5' is not a time: write a unit").name(&[("5", "")]);
    let error = PathSpec::default().set("latency", "1ms").unwrap_err().to_string();
    assert!(error.contains("unknown field `latency`, expected one of rate, rtt, delay, queue"), "{error}");
}

#[test]
fn impossible_parameters_of_a_queue_are_refused() {
    let fault = |text: &str| parsed::<Aqm>(text).fault(100.0);
    for good in ["droptail", "red", "red:min_th=0,max_p=0,w_q=1", "red:max_th=100", "red:max_p=1"] {
        assert_eq!(fault(good), None, "{good}");
    }
    for (text, expected) in [
        ("red:min_th=-1", "min_th of -1 is below 0"),
        ("red:min_th=nan", "min_th of NaN is below 0"),
        ("red:min_th=15", "max_th of 15 is not above min_th, which is 15"),
        ("red:max_th=inf", "max_th of inf is not above"),
        ("red:max_th=101", "max_th of 101 packets is more than the queue holds, which is 100"),
        ("red:max_p=1.5", "max_p of 1.5 is not between 0 and 1"),
        ("red:max_p=nan", "max_p of NaN is not between"),
        ("red:w_q=0", "w_q of 0 is not above 0"),
        ("red:w_q=1.1", "w_q of 1.1 is not above 0 and up to 1"),
    ] {
        let why = fault(text).unwrap_or_else(|| panic!("{text} is taken"));
        assert!(why.contains(expected), "{text}: {why}");
    }
}

#[test]
fn overrides_change_one_direction() {
    let base = PathSpec::of("rate=100Mbit; up=rate=10Mbit;delay=5ms;loss=1%");
    for (stream, rate, loss, millis) in [(0, "10Mbit", 0.01, 5), (1, "100Mbit", 0.0, 0)] {
        let own = base.direction(stream);
        assert_eq!(
            (own.rate, own.impairments.loss, own.one_way().as_millis()),
            (rate.parse().ok(), loss, millis)
        );
    }
}

#[test]
fn the_default_queue_is_one_bdp() {
    for (rtt_ms, bytes) in [(200, 250_000_000), (0, 96_000)] {
        let spec = PathSpec::of(&format!("rate=10Gbit; rtt={rtt_ms}ms"));
        assert_eq!(spec.queue_limit(), Some(QueueLimit::Bytes(Bytes::new(bytes))), "{rtt_ms} ms");
    }
}

#[test]
fn reads_traces_and_names_the_line_that_is_wrong() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let load = |text: &str| {
        std::fs::write(&file, text).unwrap();
        RateSchedule::load_trace(file.path())
    };
    // Ten packets in 20 ms.
    assert_eq!(load("2\n4\n6\n8\n10\n12\n14\n16\n18\n20\n").unwrap().nominal(), "6Mbit".parse().ok());
    for (text, expected) in [
        ("", "it has no lines"),
        ("0\n0\n", "all its times are 0"),
        ("1\n\n3\n2\n", "line 4: '2' comes before"),
        ("1\nx\n", "line 2: 'x' is not a time"),
        ("-1\n", "line 1: '-1' is not a time"),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
