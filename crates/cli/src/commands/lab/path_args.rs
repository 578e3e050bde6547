//! The options of an emulated path: the fields of a scenario's path, by the same names.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, arg};
use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::{LabError, PathSpec, QueueLimit};

/// Returns the options; those with a value hold its text.
fn options() -> [Arg; 25] {
    [
        arg!(--rate <RATE> "Set the rate of the bottleneck each way [default: as fast as this machine]"),
        arg!(--rtt <RTT> "Set the round-trip time, half of it each way").default_value("0"),
        arg!(--queue <SIZE> "Set the queue before the bottleneck, in bytes (250MB) or packets (100packets) [default: one BDP]"),
        arg!(--delay <TIME> "Set the one-way delay in each direction, as netem's `delay`: half of --rtt").conflicts_with("rtt"),
        arg!(--loss <PERCENT> "Lose packets at random each way, as netem's `loss`: 0.1%").default_value("0%"),
        arg!(--gemodel <"P,R[,..]"> "Lose packets in bursts each way, as netem's gemodel: p,r[,1-h[,1-k]], shares or percent (0.1%,10%)").default_value("none"),
        arg!(--aqm <"NAME[:..]"> "Choose how the queue drops packets: droptail, red, codel or fq_codel, with parameters (codel:target=5ms,interval=100ms)").default_value("droptail"),
        arg!(--background <RATE> "Add Poisson background traffic each way: a rate, a share of --rate, or steps (0@0s,20%@8s,50%@16s)").default_value("0"),
        arg!(--"cross-flows" <"N[@FROM..TO]"> "Add bulk TCP cross flows from the server to the client: number and time (4@5s..20s)").default_value("0"),
        arg!(--"ack-compression" <TIME> "Hold pure acknowledgements, each way, to the next multiple of this time, as a switch that bunches them").default_value("0"),
        arg!(--ecn "Let the hosts negotiate ECN, and the queue (--aqm red, codel, fq_codel) mark instead of dropping"),
        arg!(--jitter <TIME> "Vary the delay by up to this time, up and down; packets keep their order").default_value("0"),
        arg!(--reorder <"PERCENT,TIME"> "Hold a share of packets back for a time, so that others overtake them: 1%,5ms").default_value("none"),
        arg!(--duplicate <PERCENT> "Duplicate packets: 0.1%").default_value("0%"),
        arg!(--corrupt <PERCENT> "Flip a bit of packets: 0.1%").default_value("0%"),
        arg!(--"rate-steps" <"RATE@TIME[,..]"> "Change the rate at times since the first packet: 100Mbit@0s,20Mbit@8s").conflicts_with("trace"),
        arg!(--trace <FILE> "Send by a trace of mahimahi: a line for each 1500 bytes, with the millisecond at which they may leave").value_hint(ValueHint::FilePath),
        arg!(--up <"NAME=VALUE[;..]"> "Override values from the client to the server: rate=10Mbit; queue=100packets").default_value("none"),
        arg!(--down <"NAME=VALUE[;..]"> "Override values from the server to the client").default_value("none"),
        arg!(--second <"NAME=VALUE[;..]"> "Add a second bottleneck behind the first, as it differs from that: rate=50Mbit").default_value("none"),
        arg!(--pairs <"RTT[@WHICH],.."> "Add pairs of hosts that share the path, by their round trips; @first or @second: they cross only this bottleneck. Their names are client1, server1, client2 and so on").default_value("none").conflicts_with_all(["rtt", "delay"]),
        arg!(--hosts <HOSTS> "Set the hosts' TCP buffer limits: stock (Debian's) or tuned (1 GiB)").default_value("stock"),
        arg!(--congestion <NAME> "Set the hosts' congestion control: cubic, bbr, reno").default_value("cubic"),
        arg!(--seed <SEED> "Set the seed of all random numbers").default_value("1"),
        arg!(--mtu <MTU> "Set the largest packet in bytes, at the IP layer").default_value("1500"),
    ]
    .map(|option| match option.get_action() {
        ArgAction::SetTrue => option,
        _ => {
            let name = option.get_id().to_string();
            option.value_parser(move |text: &str| checked(&name, text))
        }
    })
}

/// The given options of a path.
#[derive(Debug)]
pub(super) struct PathArgs(Vec<(String, String)>);

impl PathArgs {
    /// # Errors
    /// An invalid trace.
    pub(super) fn spec(&self) -> Result<PathSpec, LabError> {
        let mut spec = PathSpec::default();
        self.0.iter().try_for_each(|(key, text)| spec.set(key, text))?;
        Ok(spec)
    }
}

impl Args for PathArgs {
    fn augment_args(command: Command) -> Command {
        command.args(options())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PathArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = options().into_iter().filter_map(|option| {
            let name = option.get_id().as_str();
            let text = match option.get_action() {
                ArgAction::SetTrue => matches.get_flag(name).then(|| "yes".to_owned()),
                _ => matches.get_one::<String>(name).cloned(),
            };
            Some((key(name), text?))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the name of an option in scenarios.
fn key(name: &str) -> String {
    name.replace('-', "_")
}

/// Checks the value of an option; a trace is read when the path is made.
fn checked(name: &str, text: &str) -> Result<String, String> {
    let set = match name {
        "trace" => Ok(()),
        "rate" => {
            // A space may stand before its unit.
            Rate::with_unit(text)?;
            PathSpec::default().set(name, text)
        }
        _ => {
            check_units(name, text)?;
            PathSpec::default().set(&key(name), text)
        }
    };
    set.map(|()| text.to_owned()).map_err(|error| match error {
        LabError::Spec { why, .. } => why,
        other => other.to_string(),
    })
}

/// Refuses rates and sizes with a bare prefix, also within steps (0@0s,20Mbit@8s) and overrides
/// (rate=10Mbit; queue=100packets).
fn check_units(name: &str, text: &str) -> Result<(), String> {
    for assignment in text.split(';') {
        let (name, values) = assignment.split_once('=').unwrap_or((name, assignment));
        match name.trim() {
            "queue" => {
                if let Ok(QueueLimit::Bytes(_)) = values.trim().parse() {
                    Bytes::with_unit(values.trim())?;
                }
            }
            "rate" | "rate-steps" | "background" => {
                let rates = values.split([',', ' ']).filter_map(|step| step.split('@').next());
                for rate in rates.filter(|rate| rate.parse::<Rate>().is_ok()) {
                    Rate::with_unit(rate)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_need_units_and_may_have_spaces_before_them() {
        for (name, text, is_valid) in [
            ("rate", "10 Mbit", true),
            ("rate", "10M", false),
            ("rate-steps", "100Mbit@0s,20M@8s", false),
            ("up", "rate=10Mbit; queue=100packets", true),
            ("up", "rate=10M", false),
            ("queue", "64K", false),
            ("trace", "rate=10M", true),
        ] {
            assert_eq!(checked(name, text).is_ok(), is_valid, "--{name} {text}");
        }
    }
}
