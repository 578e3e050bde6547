//! Measures an FTP or GridFTP server: its greeting, its features, and the throughput of its data
//! connections.

use std::fmt::Display;
use std::io::{Read as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::gridftp::{Features, Reply, ReplyReader};
use longhaul_core::units::Bytes;
use url::Url;

use super::error::ProbeError;
use super::findings::Findings;
use super::http::throughput;
use super::tcp_flows::{Body, BodySource, FlowPlan};
use crate::cancel::Cancel;
use crate::source::gridftp::{FtpError, MeasuredFlow, file_size};
use crate::source::http::{ClientConfig, Read};

/// The timeout for a reply: servers may first look up the client's name.
const PATIENCE: Duration = Duration::from_secs(4);

/// Reads the greeting and the features, which need no login; then measures the file's data
/// connections.
///
/// # Errors
/// [`ProbeError::Failed`] if the server does not speak FTP.
pub(super) fn measure(
    findings: &mut Findings<'_>,
    url: &Url,
    address: SocketAddr,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    url.scheme().clone_into(&mut findings.report.server.protocol);
    progress("what the server can do");
    if url.scheme() == "ftps" {
        findings.miss("FTP features: this server begins with TLS");
    } else {
        ask_features(findings, address)?;
    }
    if findings.options.upload {
        findings.miss("upload: only `longhaul serve --measure` and iperf3 servers receive measurements");
        return Ok(());
    }
    let source = FtpFiles { config: findings.options.client.clone(), address };
    let cancel = Cancel::new().child_until(Instant::now() + PATIENCE);
    findings.report.server.size = match file_size(url, &source.config, &cancel) {
        Ok(size) => size,
        Err(error) => {
            findings.miss(format!(
                "TCP throughput: {error}; with a login and a file of the server it can be measured"
            ));
            return Ok(());
        }
    };
    let has_ranges = findings.report.server.ranges != Some(false);
    throughput(findings, &source, url, has_ranges, progress)
}

/// A file of an FTP server, one data connection for each body.
struct FtpFiles {
    config: ClientConfig,
    address: SocketAddr,
}

impl BodySource for FtpFiles {
    fn open(
        &self,
        plan: &FlowPlan,
        index: u32,
        cancel: &Cancel,
    ) -> Result<Option<Box<dyn Body>>, ProbeError> {
        match MeasuredFlow::open(&plan.url, &self.config, (index, plan.streams), cancel) {
            Ok(flow) => Ok(Some(Box::new(FtpBody { flow, address: self.address }))),
            Err(FtpError::Cancelled) => Ok(None),
            Err(error) => Err(failed(self.address, &error)),
        }
    }

    fn with_buffer(&self, size: Bytes) -> Result<Box<dyn BodySource>, ProbeError> {
        let config = ClientConfig { recv_buffer: Some(size), ..self.config.clone() };
        Ok(Box::new(Self { config, address: self.address }))
    }
}

struct FtpBody {
    flow: MeasuredFlow,
    address: SocketAddr,
}

impl Body for FtpBody {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Read, ProbeError> {
        self.flow.read(buffer).map_err(|error| failed(self.address, &error))
    }

    fn socket(&self) -> &TcpStream {
        self.flow.socket()
    }
}

fn failed(address: SocketAddr, why: &dyn Display) -> ProbeError {
    let message =
        format!("cannot use the FTP server at {address}: {why}; is this the right port and scheme?");
    Failure::new(FailureKind::Protocol, message).into()
}

fn ask_features(findings: &mut Findings<'_>, address: SocketAddr) -> Result<(), ProbeError> {
    let failed = |why: &dyn Display| failed(address, why);
    let mut control = TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| failed(&error))?;
    let mut replies = ReplyReader::default();
    let mut read = |control: &mut TcpStream| read_reply(control, &mut replies).map_err(|why| failed(&why));
    let greeting = read(&mut control)?;
    if !greeting.is_positive() {
        return Err(failed(&format!("it greets with {}", greeting.last_line().escape_debug())));
    }
    findings.report.server.software = Some(greeting.last_line().escape_debug().to_string());
    control.write_all(b"FEAT\r\n").map_err(|error| failed(&error))?;
    let features = Features::parse(&read(&mut control)?);
    // Without QUIT, the server would log a broken connection; the reply is not needed.
    let _ = control.write_all(b"QUIT\r\n");
    findings.report.server.ranges = Some(features.restarts_streams() || features.partial_retrieve());
    let known = [
        (features.extended_mode(), "parallel data connections (MODE E)"),
        (features.partial_retrieve(), "partial retrieve (ERET)"),
        (features.adjusted_store(), "adjusted store (ESTO)"),
        (features.authenticates_by("TLS"), "TLS"),
        (features.authenticates_by("GSSAPI"), "GSI"),
    ];
    let listed = known.into_iter().filter(|(is_listed, _)| *is_listed);
    findings.report.server.features.extend(listed.map(|(_, name)| name.to_owned()));
    Ok(())
}

fn read_reply(control: &mut TcpStream, replies: &mut ReplyReader) -> Result<Reply, String> {
    let until = Instant::now() + PATIENCE;
    let mut buffer = [0; 4096];
    loop {
        if let Some(reply) = replies.next_reply().map_err(|error| error.to_string())? {
            return Ok(reply);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("no reply within {PATIENCE:?}"));
        }
        control.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        match control.read(&mut buffer) {
            Ok(0) => return Err("it closed the connection".to_owned()),
            Ok(more) => replies.feed(&buffer[..more]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
