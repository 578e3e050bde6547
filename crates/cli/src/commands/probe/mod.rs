//! `longhaul probe HOST|URL`.

mod plot;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use longhaul_core::probe::tables;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::probe::{self, ProbeOptions, ProbeTarget};
use longhaul_engine::source::http::{ClientConfig, Credentials};
use longhaul_scope::draw;

use crate::login_args::bearer_token;
use crate::streams_args::MemoryArgs;
use crate::{exit, say, stdout};

/// Measure the path to a server: what it holds, and which knob makes a transfer over it faster.
///
/// RTT, path MTU, rate, queue, loss and reordering by UDP (against `longhaul serve --measure`), TCP
/// by number of connections against any HTTP server, and what the server can do; FTP servers list
/// their features, iperf3 servers are measured by iperf3 itself. Takes ten seconds at most and
/// sends a tenth of what a full-rate test of that time would send; --full sweeps numbers of
/// connections, sizes of buffers and congestion controls. `get` starts from what was found.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// A host (HTTP, port 80), HOST:PORT, or a URL of http, https, ftp, ftps, gsiftp or iperf3;
    /// best that of a large file
    #[arg(value_name = "HOST|URL")]
    target: String,

    /// Sweep too: up to two minutes, with as much sent as a transfer of that time
    #[arg(long)]
    full: bool,

    /// Measure the upload alone, as `put` sends, with all of the time; against `longhaul serve
    /// --measure` and iperf3
    #[arg(long, conflicts_with = "full")]
    upload: bool,

    /// Send no UDP faster than this; by default as fast as the server allows
    #[arg(long, value_name = "RATE", value_parser = ceiling, conflicts_with = "upload")]
    ceiling: Option<Rate>,

    /// Print the transfer time of a file of this size
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = Bytes::with_unit)]
    size: Bytes,

    /// Print one JSON object on stdout instead of tables
    #[arg(long)]
    json: bool,

    /// Draw the results too: .svg, .png or .html
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    plot: Option<PathBuf>,

    #[command(flatten)]
    access: AccessArgs,

    #[command(flatten)]
    memory: MemoryArgs,
}

/// Options of access to the server.
#[derive(Debug, Args)]
struct AccessArgs {
    /// Add a request header; may be given several times
    #[arg(long, value_name = "K: V")]
    header: Vec<HeaderField>,

    /// Send a bearer token, which a file holds
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token: Option<PathBuf>,

    /// Send the token over http:// too, where any host on the path can read it
    #[arg(long)]
    allow_cleartext: bool,

    /// Trust further root certificates, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cacert: Option<PathBuf>,
}

/// The least ceiling: the three trains of 16 packets that find the rate then take 0.6 s.
const MIN_CEILING: Rate = Rate::bits_per_sec(1_000_000);

fn ceiling(text: &str) -> Result<Rate, String> {
    match Rate::with_unit(text)? {
        rate if rate < MIN_CEILING => Err("a probe needs 1Mbit or more".to_owned()),
        rate => Ok(rate),
    }
}

/// The option that sets the file of the charts.
const PLOT: &str = "--plot";

/// Probes the path, and prints the results.
///
/// SIGINT ends the program at once, as no handler is set: no state needs cleaning up.
pub(crate) fn run(args: &ProbeArgs) -> anyhow::Result<ExitCode> {
    args.plot.as_deref().map_or(Ok(()), |file| draw::check_place(file, PLOT))?;
    let options = ProbeOptions {
        full: args.full,
        upload: args.upload,
        ceiling: args.ceiling,
        size: args.size,
        client: args.access.client().map_err(|error| exit::not_set_up(&error, &Cancel::new()))?,
        memory: args.memory.memory(),
    };
    let progress = |what: &str| {
        if std::io::stderr().is_terminal() && !args.json {
            say::line(format_args!("measuring {what}"));
        }
    };
    let probed = ProbeTarget::parse(&args.target).and_then(|target| probe::run(&target, &options, &progress));
    let outcome = probed?;
    if args.json {
        // A report always serialises.
        stdout::line(serde_json::to_string(&outcome.report).unwrap_or_default());
    } else {
        stdout::line(tables::text(&outcome.report).trim_end());
    }
    if let Some(file) = &args.plot {
        draw::write(&plot::sheet(&outcome.report), file, PLOT)?;
    }
    outcome.failure.map_or(Ok(ExitCode::SUCCESS), |error| Err(error.into()))
}

impl AccessArgs {
    /// Returns the client settings.
    fn client(&self) -> anyhow::Result<ClientConfig> {
        let mut client = ClientConfig::from_env();
        let token = self.token.as_ref().map(|file| bearer_token(file, &Cancel::new())).transpose()?;
        client.requests.headers.clone_from(&self.header);
        client.logins.credentials = token.map(Credentials::Bearer);
        client.logins.allow_cleartext = self.allow_cleartext;
        client.tls.ca_file.clone_from(&self.cacert);
        Ok(client)
    }
}
