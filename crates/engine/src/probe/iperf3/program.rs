//! Runs the program iperf3: tests of one and several connections, and of datagrams.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::probe::flow_rate::{ip_rate, payload_rate};
use longhaul_core::probe::iperf3::{Iperf3Error, parse_tcp, parse_udp};
use longhaul_core::probe::packet_train::udp_headers;
use longhaul_core::probe::report::{TcpRow, UdpRow};
use longhaul_core::units::{Bytes, Rate};

use super::{FIRST_TEST, GROWTH, TEST_ROUND_TRIPS, UDP_SECONDS, has_time, takes_seconds};
use crate::cancel::Cancel;
use crate::probe::findings::Findings;
use crate::probe::http::SEVERAL;
use crate::probe::tcp_flows::SETTLED_RTTS;
use crate::retry_loop::Retries;

/// The length of a TCP test in seconds, unless a byte count bounds it: slow start and about a
/// second after it.
const TCP_SECONDS: u32 = 2;
/// The interval of iperf3's reports in seconds, the shortest that iperf3 accepts.
const IPERF3_INTERVAL: &str = "0.1";
/// The share of the budget for that search, and the share of the rest for several connections.
const SEARCH_SHARE: f64 = 0.3;
const SEVERAL_SHARE: f64 = 0.5;
/// A search continues while there is time for this many tests like the last one; `LAST_TESTS` if no
/// other test follows the search.
const TESTS: u32 = 6;
const LAST_TESTS: u32 = 2;
/// The factor by which a rate that still grows may increase in the next test.
const DOUBLE: f64 = 2.0;
/// The time limit of a test bounded by bytes. Only a path with less than 100 kbit/s for the first
/// test, or far less than measured before for a later one, exceeds it.
const MAX_TEST_TIME: Duration = Duration::from_secs(10);
/// The time limit of a test beyond its planned length: iperf3 keeps waiting for a server that has
/// stopped.
const TCP_PATIENCE: Duration = Duration::from_secs(6);
/// The time limit of a UDP test beyond its length and round trips. If UDP is blocked, iperf3 waits
/// for 30 seconds, and the upload is still to be measured.
const UDP_PATIENCE: Duration = Duration::from_secs(2);
/// The number of retries of a test: between two tests a server briefly closes its listening socket
/// and resets connections.
const MAX_TEST_RETRIES: u32 = 3;

/// The direction of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TestDirection {
    Download,
    Upload,
}

/// The end condition of a test.
#[derive(Debug, Clone, Copy)]
pub(super) enum Amount {
    Seconds(u32),
    Bytes(Bytes),
    /// As many datagrams as [`UDP_SECONDS`] have, after this time for connecting and starting.
    Datagrams(Duration),
}

/// A test that lasts beyond slow start.
pub(super) const WHOLE: Amount = Amount::Seconds(TCP_SECONDS);

/// An iperf3 server.
pub(super) struct Iperf3<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
}

impl Iperf3<'_> {
    /// Measures one connection: for [`TCP_SECONDS`], or over a short path by growing numbers of
    /// bytes within a share of the budget.
    pub(super) fn one(&self, findings: &mut Findings<'_>, way: TestDirection) -> Result<TcpRow, Iperf3Error> {
        if takes_seconds(findings) {
            return self.tcp(findings, WHOLE, way, &[]);
        }
        // The search in the other direction limits this one's bytes, but does not predict its rate.
        let (before, most) = (findings.budget.used, findings.budget.bytes_left());
        let mut bytes = FIRST_TEST;
        loop {
            let started = Instant::now();
            let found = self.tcp(findings, Amount::Bytes(bytes), way, &[])?;
            let rate = ip_rate(found.payload_bps, findings.mtu());
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
    pub(super) fn several(
        &self,
        findings: &mut Findings<'_>,
        way: TestDirection,
    ) -> Result<Option<TcpRow>, Iperf3Error> {
        let left = findings.budget.bytes_left().unwrap_or_default().get() as f64;
        let bytes = FIRST_TEST.max(Bytes::new((left * SEVERAL_SHARE) as u64));
        let amount = if takes_seconds(findings) { WHOLE } else { Amount::Bytes(bytes) };
        if !has_time(findings, 0, "TCP with several connections") {
            return Ok(None);
        }
        let row = self.tcp(findings, amount, way, &["-P", &SEVERAL.to_string()])?;
        Ok(Some(TcpRow { streams: SEVERAL, ..row }))
    }

    /// Runs one TCP test, and counts its bytes.
    pub(super) fn tcp(
        &self,
        findings: &mut Findings<'_>,
        amount: Amount,
        way: TestDirection,
        options: &[&str],
    ) -> Result<TcpRow, Iperf3Error> {
        let (mut row, bytes) = self.test(amount, way, options, parse_tcp)?;
        findings.budget.used += bytes;
        // During slow start, intervals as short as a round trip hold one flight each and look flat.
        row.is_flat &= row.seconds >= findings.min_rtt().get() * SETTLED_RTTS;
        row.range = row.range.filter(|_| !row.is_flat);
        Ok(row)
    }

    /// Sends messages at a rate of `rate` at the IP layer, for the path's loss or for a row of the
    /// table. Returns whether UDP passes.
    pub(super) fn udp(
        &self,
        findings: &mut Findings<'_>,
        message: Bytes,
        rate: Rate,
        for_loss: bool,
    ) -> Result<bool, Iperf3Error> {
        // iperf3 paces the payload.
        let packet = message + udp_headers(findings.address.ip());
        let payload = rate.scaled(message.get() as f64 / packet.get() as f64);
        let (length, bits) = (message.get().to_string(), payload.as_bits_per_sec().to_string());
        let options = ["-u", "-l", &length, "-b", &bits];
        let amount = Amount::Datagrams(findings.min_rtt().get() * TEST_ROUND_TRIPS);
        let would = "it would have shown the path's loss and reordering";
        let (row, loss) =
            match self.test(amount, TestDirection::Download, &options, |output| parse_udp(output, message)) {
                Ok(found) => found,
                Err(Iperf3Error::Refused(why)) => {
                    findings.miss(format!("UDP: {why}; {would}"));
                    return Ok(false);
                }
                Err(error @ Iperf3Error::Endless(_)) => {
                    let port = self.port;
                    findings.miss(format!(
                        "UDP: blocked on the way, port {port}, or the server has stalled: {error}; {would}"
                    ));
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
        findings.budget.used += row.sent_bps.bytes_in(Duration::from_secs(u64::from(UDP_SECONDS)));
        if for_loss {
            findings.report.path.loss = Some(loss);
            findings.report.path.reordered = Some(row.reordered);
        } else {
            // A shortfall beyond packet headers and the edges of the test was lost on the path.
            let is_path_limited = row.payload_bps < payload_rate(row.sent_bps, findings.mtu());
            findings.report.udp.push(UdpRow { is_path_limited, ..row });
        }
        Ok(true)
    }

    /// Runs one test, again if the server was not ready; returns the output parsed by `parse`.
    fn test<T>(
        &self,
        amount: Amount,
        way: TestDirection,
        options: &[&str],
        parse: impl Fn(&str) -> Result<T, Iperf3Error>,
    ) -> Result<T, Iperf3Error> {
        let emit = |event: &_| tracing::debug!(?event, "the iperf3 server is not ready");
        let retries = Retries { most: MAX_TEST_RETRIES, stream: 0, emit: &emit, rest: &Cancel::new() };
        let attempt = |(): &mut (), _: &mut _| parse(&self.run(amount, way, options)?);
        retries.repeat(&mut (), attempt, |(), error: &Iperf3Error| error.retry())
    }

    /// Runs one test; returns iperf3's output.
    fn run(&self, amount: Amount, way: TestDirection, options: &[&str]) -> Result<String, Iperf3Error> {
        let not_run = |error| {
            Failure::new(FailureKind::Host, format!("cannot run iperf3 (apt install iperf3): {error}"))
        };
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let (option, value, most) = match amount {
            Amount::Seconds(time) => ("--time", time.to_string(), seconds(time) + TCP_PATIENCE),
            Amount::Bytes(bytes) => ("--bytes", bytes.get().to_string(), MAX_TEST_TIME + TCP_PATIENCE),
            Amount::Datagrams(set_up) => {
                ("--time", UDP_SECONDS.to_string(), seconds(UDP_SECONDS) + set_up + UDP_PATIENCE)
            }
        };
        let mut child = Command::new("iperf3")
            .args(["--client", self.host, "--port", &self.port.to_string(), "--json"])
            .args((way == TestDirection::Download).then_some("--reverse"))
            .args(["--connect-timeout", "3000", "--interval", IPERF3_INTERVAL, option, &value])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(not_run)?;
        let output = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            // Unreadable output is not JSON, which the parser reports.
            output.map(|mut output| output.read_to_string(&mut text));
            text
        });
        let until = Instant::now() + most;
        while child.try_wait().map_err(not_run)?.is_none() {
            if Instant::now() > until {
                // The process may have exited already.
                let _ = child.kill();
                let _ = child.wait();
                return Err(Iperf3Error::Endless(most));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(reader.join().unwrap_or_default())
    }

    /// Returns the failure that names the server.
    pub(super) fn failure(&self, error: &Iperf3Error) -> Failure {
        let message = format!("cannot measure with iperf3 at {}:{}: {error}", self.host, self.port);
        Failure::new(error.kind(), message)
    }
}
