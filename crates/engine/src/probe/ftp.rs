//! Measures an FTP or GridFTP server: its greeting, its features, and the throughput of its data
//! connections.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::failure::Failure;
use longhaul_core::units::Bytes;
use url::Url;

use super::ProbeError;
use super::findings::Findings;
use super::http::throughput;
use super::tcp_flows::{BodySource, FlowBody, FlowPlan};
use crate::cancel::Cancel;
use crate::connect::Received;
use crate::source::gridftp::{MeasuredFlow, features, file_size};
use crate::source::http::ClientConfig;

/// The timeout for a reply: servers may first look up the client's name.
const FTP_REPLY_TIMEOUT: Duration = Duration::from_secs(4);

/// Reads the greeting and the features, which need no login; then measures the file's data
/// connections.
///
/// # Errors
/// [`ProbeError::Failed`] if the server does not answer, or not by FTP.
pub(super) fn measure(findings: &mut Findings<'_>, url: &Url, address: SocketAddr) -> Result<(), ProbeError> {
    url.scheme().clone_into(&mut findings.report.server.protocol);
    findings.begin("what the server can do");
    if url.scheme() == "ftps" {
        findings.miss("FTP features: this server begins with TLS");
    } else {
        ask_features(findings, address)?;
    }
    if findings.options.upload {
        findings.miss("upload: only `longhaul serve --measure` and iperf3 servers receive measurements");
        return Ok(());
    }
    let source = FtpFiles(findings.options.client.clone());
    let cancel = Cancel::new().child_until(Instant::now() + FTP_REPLY_TIMEOUT);
    findings.report.server.size = match file_size(url, &source.0, &cancel) {
        Ok(size) => size,
        Err(error) => {
            findings.miss(format!(
                "TCP throughput: {error}; with a login and a file of the server it can be measured"
            ));
            return Ok(());
        }
    };
    let has_ranges = findings.report.server.ranges != Some(false);
    throughput(findings, &source, url, has_ranges)
}

/// The files of an FTP server, one data connection for each body.
struct FtpFiles(ClientConfig);

impl BodySource for FtpFiles {
    fn open(&self, plan: &FlowPlan, index: u32, cancel: &Cancel) -> Result<Box<dyn FlowBody>, ProbeError> {
        let flow = MeasuredFlow::open(&plan.url, &self.0, (index, plan.streams), cancel);
        Ok(Box::new(flow.map_err(Failure::from)?))
    }

    fn with_buffer(&self, size: Bytes) -> Result<Box<dyn BodySource>, ProbeError> {
        Ok(Box::new(Self(ClientConfig { recv_buffer: Some(size), ..self.0.clone() })))
    }
}

impl FlowBody for MeasuredFlow {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Received, ProbeError> {
        Ok(self.read(buffer).map_err(Failure::from)?)
    }

    fn socket(&self) -> &TcpStream {
        self.socket()
    }
}

/// Reads what the server says of itself before a login.
fn ask_features(findings: &mut Findings<'_>, address: SocketAddr) -> Result<(), ProbeError> {
    let (greeting, features) = features(address, FTP_REPLY_TIMEOUT).map_err(Failure::from)?;
    let server = &mut findings.report.server;
    server.software = Some(greeting.last_line().escape_debug().to_string());
    server.ranges = Some(features.restarts_streams() || features.partial_retrieve());
    let known = [
        (features.extended_mode(), "parallel data connections (MODE E)"),
        (features.partial_retrieve(), "partial retrieve (ERET)"),
        (features.adjusted_store(), "adjusted store (ESTO)"),
        (features.authenticates_by("TLS"), "TLS"),
        (features.authenticates_by("GSSAPI"), "GSI"),
    ];
    let listed = known.into_iter().filter(|(is_listed, _)| *is_listed);
    server.features.extend(listed.map(|(_, name)| name.to_owned()));
    Ok(())
}
