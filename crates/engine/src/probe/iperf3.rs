//! Measures iperf3 servers by running the program iperf3.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::probe::flow_rate::{ip_rate, payload_rate};
use longhaul_core::probe::iperf3::{Iperf3Error, Iperf3Tcp, parse_tcp, parse_udp};
use longhaul_core::probe::packet_train::{LossShare, udp_headers};
use longhaul_core::probe::report::{
    CeilingSource, MeasuredRate, RateEvidence, TcpRow, UdpCeiling, UdpRow, UploadFindings,
};
use longhaul_core::probe::server_limits::{ConnectionRates, find_limit};
use longhaul_core::probe::train_search::loss_train;
use longhaul_core::units::{Bytes, Rate};

use super::error::ProbeError;
use super::findings::Findings;
use super::tcp_flows::SETTLED_RTTS;

/// The length of a TCP test in seconds, unless a byte count bounds it: slow start and about a
/// second after it.
const TCP_SECONDS: u32 = 2;
/// The length of a UDP test in seconds. A test bounded by bytes would not end if packets are lost.
const UDP_SECONDS: u32 = 1;
/// From this RTT on, TCP tests are bounded by time: slow start to 1 Gbit/s takes ten round trips,
/// 0.2 s.
const LONG_RTT: Duration = Duration::from_millis(20);
/// The interval of iperf3's reports in seconds, the shortest that iperf3 accepts.
const INTERVAL: &str = "0.1";
/// The bytes of the first TCP test, and the factor for each further test, within the budget.
const FIRST: Bytes = Bytes::kib(128);
const GROWTH: u64 = 4;
/// The share of the budget for that search, and the share of the rest for several connections.
const SEARCH_SHARE: f64 = 0.3;
const SEVERAL_SHARE: f64 = 0.5;
/// A search continues while there is time for this many tests like the last one; `LAST_TESTS` if no
/// other test follows the search.
const TESTS: u32 = 6;
const LAST_TESTS: u32 = 2;
/// The factor by which a rate that still grows may increase in the next test.
const DOUBLE: f64 = 2.0;
/// The round trips of a test beside its data: two connections, options, start, end, results.
const ROUND_TRIPS: u32 = 8;
/// The ceiling of UDP relative to TCP's best rate: high enough to reach the path's limit, low enough
/// not to flood it.
const UDP_SHARE: f64 = 1.05;
/// The minimum TCP rate for a UDP test: iperf3 takes a rate of zero for no limit.
const MIN_RATE: Rate = Rate::bits_per_sec(10_000);
/// The number of connections that a single one is compared with.
const SEVERAL: u32 = 4;
/// The time limit of a test bounded by bytes. Only a path with less than 100 kbit/s for the first
/// test, or far less than measured before for a later one, exceeds it.
const LONGEST: Duration = Duration::from_secs(10);
/// The time limit of a test beyond its planned length: iperf3 keeps waiting for a server that has
/// stopped.
const PATIENCE: Duration = Duration::from_secs(6);
/// The time limit of a UDP test beyond its length and round trips. If UDP is blocked, iperf3 waits
/// for 30 seconds, and the upload is still to be measured.
const UDP_PATIENCE: Duration = Duration::from_secs(2);
/// The number of attempts for a test: between two tests a server briefly closes its listening
/// socket and resets connections.
const TRIES: u32 = 4;
/// The pause before a second attempt; it grows with each attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// The message sizes, buffer sizes, numbers of streams and congestion controls of `--full`.
const MESSAGES: [u64; 2] = [64, 1024];
const BUFFERS: [Bytes; 4] = [Bytes::kib(64), Bytes::kib(256), Bytes::mib(1), Bytes::mib(2)];
const STREAMS: [u32; 3] = [2, 8, 16];
const CONTROLS: [&str; 3] = ["cubic", "bbr", "reno"];

/// Measures the download (`-R`), then the upload.
///
/// # Errors
/// [`ProbeError::Local`] if iperf3 cannot be run, [`ProbeError::Iperf3`] if it fails.
pub(super) fn measure(
    findings: &mut Findings<'_>,
    host: &str,
    port: u16,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    "iperf3".clone_into(&mut findings.report.server.protocol);
    let iperf3 = Iperf3 { host, port };
    if findings.options.upload {
        return upload(findings, &iperf3, progress);
    }
    progress("TCP, one connection");
    let one = iperf3.one(findings, Direction::Download)?;
    findings.report.tcp.push(row(&one, 1, None, None));
    progress("TCP, several connections");
    let several = iperf3.several(findings, Direction::Download)?;
    findings.report.tcp.extend(several.iter().map(|several| row(several, SEVERAL, None, None)));
    findings.report.server.limit = several.as_ref().map(|several| {
        find_limit(&ConnectionRates {
            rtt: findings.min_rtt(),
            one: one.received,
            is_flat: one.is_flat,
            connections: SEVERAL,
            several: several.received,
            several_are_flat: several.is_flat,
            window: None,
            tcp_wmem_max: None,
            path: None,
            had_losses: one.retransmits.is_some_and(|count| count > 0),
        })
    });
    let best = several.map_or(one.received, |several| several.received.max(one.received));
    if best < MIN_RATE {
        findings.miss("UDP: TCP moved next to nothing, so there is no rate to pace it by; iperf3 takes a rate of 0 for none");
        return Ok(());
    }
    progress("UDP");
    let ceiling = ip_rate(best, findings.mtu()).scaled(UDP_SHARE);
    let ceiling = UdpCeiling::lower(findings.options.ceiling, ceiling, CeilingSource::Tcp);
    findings.report.udp_ceiling = Some(ceiling);
    let headers = udp_headers(findings.address().ip());
    let time = Duration::from_secs(u64::from(UDP_SECONDS));
    let mut passes_udp = true;
    if has_time(findings, UDP_SECONDS, "UDP") {
        let train = loss_train(best.min(ceiling.rate_bps), time, headers);
        let rate = Rate::over(train.bytes(headers), time).min(ceiling.rate_bps);
        passes_udp = iperf3.udp(findings, train.message, rate, true)?;
    }
    findings.miss("the queue: iperf3 does not report packet arrival times");
    // A failed upload does not invalidate the measurements of the download.
    if let Err(error) = upload(findings, &iperf3, progress) {
        findings.miss(format!("upload: {error}"));
    }
    if findings.options.full {
        if passes_udp {
            sweep_udp(findings, &iperf3, ceiling.rate_bps, progress)?;
        }
        sweep_tcp(findings, &iperf3, progress)?;
    }
    Ok(())
}

/// Returns whether a TCP test lasts [`TCP_SECONDS`]. From [`LONG_RTT`] on, slow start takes a tenth
/// of the path's traffic, and a test bounded by bytes shows far too low a rate.
fn takes_seconds(findings: &Findings<'_>) -> bool {
    findings.options.full || findings.min_rtt().get() >= LONG_RTT
}

/// Returns whether another test of `seconds` ends in time; records a missing measurement if not.
fn has_time(findings: &mut Findings<'_>, seconds: u32, what: &str) -> bool {
    let needed = findings.min_rtt().get() * ROUND_TRIPS + Duration::from_secs(u64::from(seconds));
    let has_time = findings.budget.time_left() > needed;
    if !has_time {
        findings.miss_rate(format!("{what}: no time was left; see --full"));
    }
    has_time
}

/// Measures the upload; also with several connections if the upload has all of the time.
fn upload(
    findings: &mut Findings<'_>,
    iperf3: &Iperf3<'_>,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    progress("TCP upload");
    if !has_time(findings, 0, "upload") {
        return Ok(());
    }
    let mut upload = UploadFindings::default();
    let is_thorough = findings.options.upload || findings.options.full;
    let one = iperf3.one(findings, Direction::Upload)?;
    upload.tcp.push(row(&one, 1, None, None));
    if is_thorough {
        let several = iperf3.several(findings, Direction::Upload)?;
        upload.tcp.extend(several.map(|several| row(&several, SEVERAL, None, None)));
    }
    let best = upload.tcp.iter().map(|row| row.payload_bps).max().unwrap_or_default();
    let rate_bps = ip_rate(best, findings.mtu());
    upload.rate = Some(MeasuredRate::new(rate_bps, RateEvidence::TcpSteady, true));
    findings.report.upload = Some(upload);
    Ok(())
}

/// Sweeps message sizes, including that of the path's MTU.
fn sweep_udp(
    findings: &mut Findings<'_>,
    iperf3: &Iperf3<'_>,
    rate: Rate,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    let largest = findings.mtu().saturating_sub(udp_headers(findings.address().ip()));
    for message in MESSAGES.map(Bytes::new).into_iter().chain([largest]) {
        progress(&format!("UDP with messages of {} bytes", message.get()));
        if !iperf3.udp(findings, message, rate, false)? {
            break;
        }
    }
    Ok(())
}

/// Sweeps numbers of streams, sizes of buffers and congestion controls.
fn sweep_tcp(
    findings: &mut Findings<'_>,
    iperf3: &Iperf3<'_>,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    for streams in STREAMS {
        progress(&format!("TCP, {streams} connections"));
        let result = iperf3.tcp(findings, WHOLE, Direction::Download, &["-P", &streams.to_string()])?;
        findings.report.tcp.push(row(&result, streams, None, None));
    }
    for buffer in BUFFERS {
        progress(&format!("TCP with buffers of {buffer}"));
        let result = iperf3.tcp(findings, WHOLE, Direction::Download, &["-w", &buffer.get().to_string()])?;
        findings.report.tcp.push(row(&result, 1, Some(buffer), None));
    }
    for name in CONTROLS {
        progress(&format!("TCP with {name}"));
        match iperf3.tcp(findings, WHOLE, Direction::Download, &["-C", name]) {
            Ok(result) => findings.report.tcp.push(row(&result, 1, None, Some(name))),
            Err(ProbeError::Iperf3 { source: Iperf3Error::Refused(why), .. }) => {
                findings.miss(format!("TCP with {name}: {why}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn row(result: &Iperf3Tcp, streams: u32, buffer: Option<Bytes>, name: Option<&str>) -> TcpRow {
    TcpRow {
        streams,
        buffer,
        congestion: name.map(str::to_owned),
        payload_bps: result.received,
        seconds: result.time,
        is_flat: result.is_flat,
        range: (!result.is_flat).then_some(result.range),
        out_of_order: result.retransmits.unwrap_or(0),
    }
}

/// Returns a share of `left`, but at least [`FIRST`] bytes.
fn part(left: Bytes, share: f64) -> Bytes {
    FIRST.max(Bytes::new((left.get() as f64 * share) as u64))
}

/// The direction of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Download,
    Upload,
}

/// The end condition of a test.
#[derive(Debug, Clone, Copy)]
enum Amount {
    Seconds(u32),
    Bytes(Bytes),
    /// As many datagrams as [`UDP_SECONDS`] have, after this time for connecting and starting.
    Datagrams(Duration),
}

/// A test that lasts beyond slow start.
const WHOLE: Amount = Amount::Seconds(TCP_SECONDS);

/// An iperf3 server.
struct Iperf3<'a> {
    host: &'a str,
    port: u16,
}

impl Iperf3<'_> {
    /// Measures one connection: for [`TCP_SECONDS`], or over a short path by growing numbers of
    /// bytes within a share of the budget.
    fn one(&self, findings: &mut Findings<'_>, way: Direction) -> Result<Iperf3Tcp, ProbeError> {
        if takes_seconds(findings) {
            return self.tcp(findings, WHOLE, way, &[]);
        }
        // The search in the other direction limits this one's bytes, but does not predict its rate.
        let (before, most) = (findings.budget.used, findings.budget.bytes_left());
        let mut bytes = FIRST;
        loop {
            let started = Instant::now();
            let found = self.tcp(findings, Amount::Bytes(bytes), way, &[])?;
            let rate = ip_rate(found.received, findings.mtu());
            let supported = if found.is_flat { rate } else { rate.scaled(DOUBLE) };
            let planned = supported.bytes_in(findings.budget.filling_time(SEARCH_SHARE));
            let planned = most.map_or(planned, |most| planned.min(most));
            let used = findings.budget.used.saturating_sub(before);
            let next = (bytes * GROWTH).min(planned.saturating_sub(used));
            // Several connections, UDP and the upload need time too; nothing follows the upload of
            // a whole run.
            let tests = if most.is_some() { LAST_TESTS } else { TESTS };
            if next < bytes || findings.budget.time_left() <= started.elapsed() * tests {
                findings.budget.set_rate(rate);
                return Ok(found);
            }
            bytes = next;
        }
    }

    /// Measures several connections at once; `None` if no time is left, which is recorded as a
    /// missing measurement.
    fn several(&self, findings: &mut Findings<'_>, way: Direction) -> Result<Option<Iperf3Tcp>, ProbeError> {
        let left = part(findings.budget.bytes_left().unwrap_or_default(), SEVERAL_SHARE);
        let amount = if takes_seconds(findings) { WHOLE } else { Amount::Bytes(left) };
        if !has_time(findings, 0, "TCP with several connections") {
            return Ok(None);
        }
        self.tcp(findings, amount, way, &["-P", &SEVERAL.to_string()]).map(Some)
    }

    /// Runs one TCP test, and counts its bytes.
    fn tcp(
        &self,
        findings: &mut Findings<'_>,
        amount: Amount,
        way: Direction,
        options: &[&str],
    ) -> Result<Iperf3Tcp, ProbeError> {
        let mut found = self.test(amount, way, options, parse_tcp)?;
        findings.budget.spend(found.bytes);
        // During slow start, intervals as short as a round trip hold one flight each and look flat.
        found.is_flat &= found.time >= findings.min_rtt().get() * SETTLED_RTTS;
        Ok(found)
    }

    /// Sends messages at a rate of `rate` at the IP layer, for the path's loss or for a row of the
    /// table. Returns whether UDP passes.
    fn udp(
        &self,
        findings: &mut Findings<'_>,
        message: Bytes,
        rate: Rate,
        for_loss: bool,
    ) -> Result<bool, ProbeError> {
        // iperf3 paces the payload.
        let packet = message + udp_headers(findings.address().ip());
        let payload = rate.scaled(message.get() as f64 / packet.get() as f64);
        let (length, bits) = (message.get().to_string(), payload.as_bits_per_sec().to_string());
        let options = ["-u", "-l", &length, "-b", &bits];
        let amount = Amount::Datagrams(findings.min_rtt().get() * ROUND_TRIPS);
        let would = "it would have shown the path's loss and reordering";
        let found =
            match self.test(amount, Direction::Download, &options, |output| parse_udp(output, message)) {
                Ok(found) => found,
                Err(ProbeError::Iperf3 { source: Iperf3Error::Refused(why), .. }) => {
                    findings.miss(format!("UDP: {why}; {would}"));
                    return Ok(false);
                }
                Err(ProbeError::Iperf3 { source: source @ Iperf3Error::Endless(_), .. }) => {
                    let port = self.port;
                    findings.miss(format!(
                        "UDP: blocked on the way, port {port}, or the server has stalled: {source}; {would}"
                    ));
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
        findings.budget.spend(found.sent.bytes_in(Duration::from_secs(u64::from(UDP_SECONDS))));
        if for_loss {
            findings.report.path.loss = Some(LossShare::new(found.packets, found.lost));
            findings.report.path.reordered = Some(u32::try_from(found.out_of_order).unwrap_or(u32::MAX));
            return Ok(true);
        }
        // A shortfall beyond packet headers and the edges of the test was lost on the path.
        let path = payload_rate(found.sent, findings.mtu());
        findings.report.udp.push(UdpRow {
            message,
            payload_bps: found.received,
            sent_bps: found.sent,
            loss: found.lost as f64 / found.packets.max(1) as f64,
            reordered: u32::try_from(found.out_of_order).unwrap_or(u32::MAX),
            is_path_limited: found.received < path,
        });
        Ok(true)
    }

    /// Runs one test, again if the server was not ready; returns the output parsed by `parse`.
    fn test<T>(
        &self,
        amount: Amount,
        way: Direction,
        options: &[&str],
        parse: impl Fn(&str) -> Result<T, Iperf3Error>,
    ) -> Result<T, ProbeError> {
        let mut tries = 1;
        loop {
            match parse(&self.run(amount, way, options)?) {
                Err(error) if error.is_passing() && tries < TRIES => std::thread::sleep(PAUSE * tries),
                result => return result.map_err(|source| self.failed(source)),
            }
            tries += 1;
        }
    }

    /// Runs one test; returns iperf3's output.
    fn run(&self, amount: Amount, way: Direction, options: &[&str]) -> Result<String, ProbeError> {
        let local = |source| ProbeError::Local { what: "run iperf3 (apt install iperf3)".to_owned(), source };
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let (option, value, most) = match amount {
            Amount::Seconds(time) => ("--time", time.to_string(), seconds(time) + PATIENCE),
            Amount::Bytes(bytes) => ("--bytes", bytes.get().to_string(), LONGEST + PATIENCE),
            Amount::Datagrams(set_up) => {
                ("--time", UDP_SECONDS.to_string(), seconds(UDP_SECONDS) + set_up + UDP_PATIENCE)
            }
        };
        let mut child = Command::new("iperf3")
            .args(["--client", self.host, "--port", &self.port.to_string(), "--json"])
            .args((way == Direction::Download).then_some("--reverse"))
            .args(["--connect-timeout", "3000", "--interval", INTERVAL, option, &value])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(local)?;
        let output = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            // Unreadable output is not JSON, which the parser reports.
            output.map(|mut output| output.read_to_string(&mut text));
            text
        });
        let until = Instant::now() + most;
        while child.try_wait().map_err(local)?.is_none() {
            if Instant::now() > until {
                // The process may have exited already.
                let _ = child.kill();
                let _ = child.wait();
                return Err(self.failed(Iperf3Error::Endless(most)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(reader.join().unwrap_or_default())
    }

    fn failed(&self, source: Iperf3Error) -> ProbeError {
        ProbeError::Iperf3 { at: format!("{}:{}", self.host, self.port), source }
    }
}
