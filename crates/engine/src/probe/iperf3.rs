//! iperf3 servers, measured by the program iperf3 itself.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::probe::flow_rate::{ip_rate, payload_rate};
use longhaul_core::probe::iperf3::{Iperf3Error, Iperf3Tcp, parse_tcp, parse_udp};
use longhaul_core::probe::packet_train::LossShare;
use longhaul_core::probe::report::{MeasuredRate, RateEvidence, TcpRow, UdpRow, UploadFindings};
use longhaul_core::probe::server_limits::{ConnectionRates, find_limit};
use longhaul_core::units::{Bytes, Rate};

use super::error::ProbeError;
use super::findings::Findings;

/// Seconds of one test over TCP: slow start and a second of what follows.
const TCP_SECONDS: u32 = 2;
/// Seconds of one test over UDP.
const UDP_SECONDS: u32 = 1;
/// UDP is sent at this share of TCP's best rate: high enough to meet the path, low enough not to flood it.
const UDP_SHARE: f64 = 1.05;
/// Below this rate of TCP nothing is sent over UDP: to iperf3 a rate of zero means no limit.
const LEAST_RATE: Rate = Rate::bits_per_sec(10_000);
/// The UDP rate of loss: no queue builds up.
const LOSS_SHARE: f64 = 0.3;
/// Connections beside which a single one is compared.
const SEVERAL: u32 = 4;
/// What a test takes beyond its time before it is ended: iperf3 waits for a server that has gone.
const PATIENCE: Duration = Duration::from_secs(6);
/// How often a test is tried: between two tests a server closes its listening socket for a moment, and resets what has connected.
const TRIES: u32 = 4;
/// The pause before another try, longer each time.
const PAUSE: Duration = Duration::from_millis(200);

/// Sizes of messages, buffers, numbers of streams and congestion controls of `--full`.
const MESSAGES: [u64; 2] = [64, 1024];
const BUFFERS: [Bytes; 4] = [Bytes::kib(64), Bytes::kib(256), Bytes::mib(1), Bytes::mib(2)];
const STREAMS: [u32; 3] = [2, 8, 16];
const CONTROLS: [&str; 3] = ["cubic", "bbr", "reno"];

/// Measures from the server to this host (`-R`), then the other direction.
///
/// # Errors
/// [`ProbeError::Local`] where iperf3 cannot be run, [`ProbeError::Iperf3`] where it fails.
pub(super) fn measure(
    findings: &mut Findings<'_>,
    host: &str,
    port: u16,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    "iperf3".clone_into(&mut findings.server.protocol);
    let iperf3 = Iperf3 { host, port };
    if findings.options.upload {
        return upload(findings, &iperf3, &[1, SEVERAL], progress);
    }
    progress("TCP, one connection");
    let one = iperf3.tcp(&[])?;
    push(findings, &one, 1, None, None);
    progress("TCP, several connections");
    let several = iperf3.tcp(&["-P", &SEVERAL.to_string()])?;
    push(findings, &several, SEVERAL, None, None);
    findings.server.limit = Some(find_limit(&ConnectionRates {
        rtt: findings.min_rtt(),
        one: one.received,
        is_flat: true,
        connections: SEVERAL,
        several: several.received,
        window: None,
        path: None,
        had_losses: one.retransmits.is_some_and(|count| count > 0),
    }));
    let best = one.received.max(several.received);
    if best < LEAST_RATE {
        findings.miss("UDP: TCP moved next to nothing, so there is no rate to pace it by; iperf3 takes a rate of 0 for none");
        return Ok(());
    }
    let largest = findings.mtu().get().saturating_sub(28);
    progress("UDP");
    iperf3.udp(findings, Bytes::new(largest), best.scaled(UDP_SHARE), false)?;
    iperf3.udp(findings, Bytes::new(largest), best.scaled(LOSS_SHARE), true)?;
    findings.miss("the queue: iperf3 does not tell when each packet arrived");
    upload(findings, &iperf3, if findings.options.full { &[1, SEVERAL] } else { &[1] }, progress)?;
    if findings.options.full {
        sweep(findings, &iperf3, best, progress)?;
    }
    Ok(())
}

/// Measures from this host to the server.
fn upload(
    findings: &mut Findings<'_>,
    iperf3: &Iperf3<'_>,
    numbers: &[u32],
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    let mut upload = UploadFindings::default();
    for &streams in numbers {
        progress("TCP upload");
        let options = ["-P", &streams.to_string()];
        let result = iperf3.test(TCP_SECONDS, Way::Upload, &options, parse_tcp)?;
        let result = result.map_err(|source| iperf3.failed(source))?;
        findings.budget.spend(result.received.bytes_in(result.time));
        upload.tcp.push(row(&result, streams, None, None));
    }
    let best = upload.tcp.iter().map(|row| row.payload_bps).max().unwrap_or_default();
    let rate_bps = ip_rate(best, findings.mtu());
    upload.rate = Some(MeasuredRate { rate_bps, evidence: RateEvidence::TcpSteady, is_lower_bound: true });
    findings.upload = Some(upload);
    Ok(())
}

fn sweep(
    findings: &mut Findings<'_>,
    iperf3: &Iperf3<'_>,
    best: Rate,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    for message in MESSAGES {
        progress(&format!("UDP with messages of {message} bytes"));
        iperf3.udp(findings, Bytes::new(message), best.scaled(UDP_SHARE), false)?;
    }
    for streams in STREAMS {
        progress(&format!("TCP, {streams} connections"));
        let result = iperf3.tcp(&["-P", &streams.to_string()])?;
        push(findings, &result, streams, None, None);
    }
    for buffer in BUFFERS {
        progress(&format!("TCP with buffers of {buffer}"));
        let result = iperf3.tcp(&["-w", &buffer.get().to_string()])?;
        push(findings, &result, 1, Some(buffer), None);
    }
    for name in CONTROLS {
        progress(&format!("TCP with {name}"));
        match iperf3.tcp(&["-C", name]) {
            Ok(result) => push(findings, &result, 1, None, Some(name)),
            Err(ProbeError::Iperf3 { source: Iperf3Error::Refused(why), .. }) => {
                findings.miss(format!("TCP with {name}: {why}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn push(
    findings: &mut Findings<'_>,
    result: &Iperf3Tcp,
    streams: u32,
    buffer: Option<Bytes>,
    name: Option<&str>,
) {
    findings.budget.spend(result.received.bytes_in(result.time));
    findings.tcp.push(row(result, streams, buffer, name));
}

fn row(result: &Iperf3Tcp, streams: u32, buffer: Option<Bytes>, name: Option<&str>) -> TcpRow {
    TcpRow {
        streams,
        buffer,
        congestion: name.map(str::to_owned),
        payload_bps: result.received,
        seconds: result.time,
        is_flat: true,
        out_of_order: result.retransmits.unwrap_or(0),
    }
}

/// The direction of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Download,
    Upload,
}

/// An iperf3 server.
struct Iperf3<'a> {
    host: &'a str,
    port: u16,
}

impl Iperf3<'_> {
    fn tcp(&self, options: &[&str]) -> Result<Iperf3Tcp, ProbeError> {
        self.test(TCP_SECONDS, Way::Download, options, parse_tcp)?.map_err(|source| self.failed(source))
    }

    /// Sends messages at `rate` of payload; for the path's loss, or as a row of the table.
    fn udp(
        &self,
        findings: &mut Findings<'_>,
        message: Bytes,
        rate: Rate,
        for_loss: bool,
    ) -> Result<(), ProbeError> {
        let (length, bits) = (message.get().to_string(), rate.as_bits_per_sec().to_string());
        let options = ["-u", "-l", &length, "-b", &bits];
        let found =
            match self.test(UDP_SECONDS, Way::Download, &options, |output| parse_udp(output, message))? {
                Ok(found) => found,
                Err(Iperf3Error::Refused(why)) => {
                    findings.miss(format!("UDP: {why}; it would have shown the path's loss and reordering"));
                    return Ok(());
                }
                Err(error) => return Err(self.failed(error)),
            };
        findings.budget.spend(found.sent.bytes_in(Duration::from_secs(u64::from(UDP_SECONDS))));
        if for_loss {
            findings.path.loss = Some(LossShare::new(found.packets, found.lost));
            findings.path.reordered = Some(u32::try_from(found.out_of_order).unwrap_or(u32::MAX));
            return Ok(());
        }
        // Beyond what a packet's headers and a test's edges explain, what is missing was lost on the path.
        let path = payload_rate(found.sent, findings.mtu());
        findings.udp.push(UdpRow {
            message,
            payload_bps: found.received,
            sent_bps: found.sent,
            loss: found.lost as f64 / found.packets.max(1) as f64,
            reordered: u32::try_from(found.out_of_order).unwrap_or(u32::MAX),
            is_path_limited: found.received < path,
        });
        Ok(())
    }

    /// Runs one test, again where the server was not ready; returns what `parse` reads.
    fn test<T>(
        &self,
        seconds: u32,
        way: Way,
        options: &[&str],
        parse: impl Fn(&str) -> Result<T, Iperf3Error>,
    ) -> Result<Result<T, Iperf3Error>, ProbeError> {
        let mut tries = 1;
        loop {
            let result = parse(&self.run(seconds, way, options)?);
            match &result {
                Err(error) if error.is_passing() && tries < TRIES => std::thread::sleep(PAUSE * tries),
                _ => return Ok(result),
            }
            tries += 1;
        }
    }

    /// Runs one test; returns what iperf3 printed.
    fn run(&self, seconds: u32, way: Way, options: &[&str]) -> Result<String, ProbeError> {
        let local = |source| ProbeError::Local { what: "run iperf3 (apt install iperf3)".to_owned(), source };
        let mut child = Command::new("iperf3")
            .args(["--client", self.host, "--port", &self.port.to_string(), "--json"])
            .args((way == Way::Download).then_some("--reverse"))
            .args(["--connect-timeout", "3000", "--time", &seconds.to_string()])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(local)?;
        let output = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            // What cannot be read is no JSON, which the parser says.
            output.map(|mut output| output.read_to_string(&mut text));
            text
        });
        let until = Instant::now() + Duration::from_secs(u64::from(seconds)) + PATIENCE;
        while child.try_wait().map_err(local)?.is_none() {
            if Instant::now() > until {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                let why = format!("no end within {PATIENCE:?} after the test's time");
                return Err(self.failed(Iperf3Error::Refused(why)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(reader.join().unwrap_or_default())
    }

    fn failed(&self, source: Iperf3Error) -> ProbeError {
        ProbeError::Iperf3 { at: format!("{}:{}", self.host, self.port), source }
    }
}
