//! Options of the number of connections and its tuner; for `get` also of the path memory.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use longhaul_agent::request::StreamsSetting;
use longhaul_core::tune;
use longhaul_engine::job::{AptSettings, Streams};
use longhaul_engine::user_state;

use crate::values::{RESEARCH, time};

/// Options of the number of streams.
#[derive(Debug, Args)]
pub(crate) struct StreamsArgs {
    /// Use this many connections; auto keeps as many as pay
    ///
    /// auto begins with one for each 3 ms of RTT, 64 at most, and with a single one below 20 ms.
    /// get keeps one from beginning to end where the server paces what it sends, but with --pace
    /// off. put keeps one where this host's send buffer (tcp_wmem) suffices for 10 Gbit/s, and
    /// sends over several only to `longhaul serve --writable` and to Apache's mod_dav_fs.
    #[arg(long, value_name = "auto|N", default_value = "auto", help_heading = "Speed")]
    streams: StreamsSetting,

    /// Choose the algorithm that sets the number of connections
    #[arg(long, value_enum, default_value = "auto", help_heading = RESEARCH, hide_short_help = true)]
    tuner: TunerArg,

    /// Multiply the number of connections by this while GridFTP-APT looks for a bracket [default:
    /// 2]
    #[arg(long, value_name = "FACTOR", value_parser = alpha, help_heading = RESEARCH, hide_short_help = true)]
    apt_alpha: Option<f64>,

    /// Make a chunk of GridFTP-APT last about this long [default: 3s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = RESEARCH, hide_short_help = true)]
    apt_delta: Option<Duration>,

    /// Begin GridFTP-APT with this many connections [default: 4]
    #[arg(long, value_name = "N", value_parser = n0, help_heading = RESEARCH, hide_short_help = true)]
    apt_n0: Option<usize>,
}

/// Options of the path memory.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Neither use nor store measurements of paths
    #[arg(long, help_heading = RESEARCH, hide_short_help = true)]
    no_memory: bool,
}

/// `--tuner`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TunerArg {
    /// Longhaul's own: decides once per RTT
    Auto,
    /// GridFTP-APT, as published: chunk by chunk
    Apt,
}

/// Maximum factor: a larger one finds no useful bracket.
const MAX_ALPHA: f64 = 16.0;

fn alpha(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(alpha) if alpha > 1.0 && alpha <= MAX_ALPHA => Ok(alpha),
        _ => Err(format!("write a number above 1, and {MAX_ALPHA} at most")),
    }
}

fn n0(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=tune::MAX_STREAMS) => Ok(n),
        _ => Err(format!("write a number from 1 to {}", tune::MAX_STREAMS)),
    }
}

impl StreamsArgs {
    /// Returns the requested streams.
    ///
    /// Fails if options contradict each other.
    pub(crate) fn requested(&self) -> anyhow::Result<Streams> {
        let has_apt_options = self.apt_alpha.is_some() || self.apt_delta.is_some() || self.apt_n0.is_some();
        match (self.streams, self.tuner) {
            (_, TunerArg::Auto) if has_apt_options => {
                bail!("--apt-alpha, --apt-delta and --apt-n0 go with --tuner apt")
            }
            (StreamsSetting::Fixed(n), TunerArg::Apt) => {
                bail!("--streams {n} leaves nothing to choose: give either that or --tuner apt")
            }
            (StreamsSetting::Fixed(n), TunerArg::Auto) => Ok(Streams::Fixed(n)),
            (StreamsSetting::Auto, TunerArg::Auto) => Ok(Streams::Auto),
            (StreamsSetting::Auto, TunerArg::Apt) => Ok(Streams::Apt(AptSettings {
                n0: self.apt_n0.unwrap_or(4),
                alpha: self.apt_alpha.unwrap_or(2.0),
                delta: self.apt_delta.unwrap_or(Duration::from_secs(3)),
            })),
        }
    }
}

impl MemoryArgs {
    /// Returns the file of the path memory; `None` if disabled.
    pub(crate) fn memory(&self) -> Option<PathBuf> {
        if self.no_memory { None } else { user_state::path_memory() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_numbers_are_refused() {
        let streams = |text: &str| text.parse::<StreamsSetting>();
        assert!(streams("0").is_err() && streams("257").is_err() && streams("many").is_err());
        assert_eq!(
            (streams("auto"), streams("256")),
            (Ok(StreamsSetting::Auto), Ok(StreamsSetting::Fixed(256)))
        );
        for text in ["1", "0.5", "-2", "NaN", "inf", "17", ""] {
            assert!(alpha(text).is_err(), "{text}");
        }
        assert!(n0("0").is_err() && n0("129").is_err() && n0("4").is_ok() && alpha("1.1").is_ok());
    }
}
