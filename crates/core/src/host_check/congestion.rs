//! Congestion controls: the one in use, those of the kernel, and those that a transfer may choose.

use super::Diagnosis;
use super::facts::{CongestionFacts, HostFacts};
use super::finding::{Finding, Fix, Severity};
use super::target::Target;

/// Controls that are made for a large BDP.
const FOR_LARGE_BDP: [&str; 6] = ["cubic", "bbr", "bbr1", "bbr3", "htcp", "bic"];
/// The controls that transfers choose.
const WANTED: [&str; 2] = ["cubic", "bbr"];

pub(super) fn check(facts: &HostFacts, target: &Target, report: &mut Diagnosis) {
    in_use(facts, target, report);
    available(&facts.congestion, report);
    allowed(&facts.congestion, report);
}

/// How a congestion control can be had.
enum Supply {
    /// The kernel has it, as far as is known.
    Present,
    /// By loading this module.
    Module(String),
    /// Not at all, for this reason.
    Absent(String),
}

impl CongestionFacts {
    fn has(&self, name: &str) -> bool {
        self.available.as_ref().is_ok_and(|names| names.iter().any(|known| known == name))
    }

    fn supply(&self, name: &str) -> Supply {
        let module = format!("tcp_{name}");
        match (&self.available, &self.modules) {
            _ if self.has(name) => Supply::Present,
            (_, Ok(modules)) if modules.contains(&module) => Supply::Module(module),
            (Err(_), _) => Supply::Present,
            (Ok(_), Ok(_)) => Supply::Absent(format!(
                "this kernel has no module {module}: install the package of its further modules, or a kernel with CONFIG_TCP_CONG_{}",
                name.to_uppercase()
            )),
            (Ok(_), Err(reason)) => {
                Supply::Absent(format!("the module {module} cannot be loaded from here ({reason})"))
            }
        }
    }
}

/// Adds to a fix what it takes that the kernel has a control.
fn supplied(fix: Fix, supply: Supply) -> Fix {
    match supply {
        Supply::Present => fix,
        Supply::Module(module) => fix.after_module(module),
        Supply::Absent(why) => fix.noted(why),
    }
}

fn in_use(facts: &HostFacts, target: &Target, report: &mut Diagnosis) {
    let congestion = &facts.congestion;
    let would_show = "how fast a sender grows again after a loss";
    report.judge(&congestion.current, "congestion control", would_show, |current| {
        let is_fit = FOR_LARGE_BDP.contains(&current.as_str());
        let severity = if is_fit { Severity::Ok } else { Severity::Problem };
        // Reno: half of the window is regained by a segment a round trip (RFC 5681, section 3.1).
        let segments = target.window().get() / facts.segment();
        let regain = segments as f64 / 2.0 * target.rtt.get().as_secs_f64();
        let arithmetic = format!(
            "reno regains half a window of {segments} segments in {} round trips of {} = {regain:.0} s after each loss",
            segments / 2,
            target.rtt
        );
        let choice = if congestion.has("cubic") || !congestion.has("bbr") { "cubic" } else { "bbr" };
        let supply = congestion.supply(choice);
        let fix = match supply {
            Supply::Absent(_) => Fix::default(),
            _ => Fix::sysctl("net.ipv4.tcp_congestion_control", choice),
        };
        let source = "RFC 9438, section 5; ESnet fasterdata, Linux host tuning";
        Finding::new(severity, current, source)
            .needs("cubic or bbr", arithmetic)
            .fixed_by(supplied(fix, supply))
    });
}

/// Shows the controls of the kernel; those that are missing are asked for where a transfer may
/// choose them.
fn available(congestion: &CongestionFacts, report: &mut Diagnosis) {
    let would_show = "which congestion controls the kernel has without loading a module";
    report.judge(&congestion.available, "available controls", would_show, |available| {
        Finding::new(Severity::Ok, available.join(" "), "tcp(7)").needs("cubic and bbr, or their modules", "")
    });
}

/// Judges which controls a process without privilege may choose.
fn allowed(congestion: &CongestionFacts, report: &mut Diagnosis) {
    let would_show = "which congestion controls a transfer may choose without root";
    report.judge(&congestion.allowed, "allowed controls", would_show, |allowed| {
        let missing: Vec<&str> =
            WANTED.into_iter().filter(|name| !allowed.iter().any(|known| known == name)).collect();
        let severity = if missing.is_empty() { Severity::Ok } else { Severity::Advice };
        let supplies = missing.iter().map(|name| (*name, congestion.supply(name)));
        let (absent, present): (Vec<_>, Vec<_>) =
            supplies.partition(|(_, supply)| matches!(supply, Supply::Absent(_)));
        let names = allowed.iter().map(String::as_str).chain(present.iter().map(|(name, _)| *name));
        let fix = if present.is_empty() {
            Fix::default()
        } else {
            let names = names.collect::<Vec<_>>().join(" ");
            Fix::sysctl("net.ipv4.tcp_allowed_congestion_control", names)
        };
        let fix = present.into_iter().chain(absent).fold(fix, |fix, (_, supply)| supplied(fix, supply));
        let arithmetic = if missing.is_empty() {
            String::new()
        } else {
            format!("a process without CAP_NET_ADMIN cannot choose {}", missing.join(" or "))
        };
        Finding::new(severity, allowed.join(" "), "tcp(7), TCP_CONGESTION")
            .needs("cubic and bbr", arithmetic)
            .fixed_by(fix)
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fix, judged, names};
    use super::*;

    #[test]
    fn reno_is_a_problem_and_the_cure_is_what_the_kernel_has() {
        let judge = |available: &[&str]| {
            judged("congestion control", |facts| {
                facts.congestion.current = Ok("reno".to_owned());
                facts.congestion.available = Ok(names(available));
            })
        };
        let finding = judge(&["reno", "cubic"]);
        assert_eq!(finding.severity, Severity::Problem);
        // 250 MB / 8948 B = 27939 segments; half of them, 200 ms each.
        assert!(finding.arithmetic.contains("27939 segments in 13969 round trips of 200 ms = 2794 s"));
        assert_eq!(finding.fix.unwrap().commands, ["sysctl -w net.ipv4.tcp_congestion_control=cubic"]);
        assert_eq!(judge(&["reno", "bbr"]).fix.unwrap().changes[0].value, "bbr");
        assert_eq!(judge(&["reno"]).fix.unwrap().commands[0], "modprobe tcp_cubic");
    }

    fn judge_allowed(
        available: Result<&[&str], &str>,
        allowed: &[&str],
        modules: Result<&[&str], &str>,
    ) -> Finding {
        let list = |names_: Result<&[&str], &str>| names_.map(names).map_err(str::to_owned);
        judged("allowed controls", |facts| {
            facts.congestion.available = list(available);
            facts.congestion.allowed = Ok(names(allowed));
            facts.congestion.modules = list(modules);
        })
    }

    #[test]
    fn controls_that_are_not_allowed_are_added_and_loaded_first_and_at_each_start() {
        let both = &["tcp_bbr", "tcp_cubic"];
        let finding = judge_allowed(Ok(&["reno", "cubic", "bbr"]), &["reno", "bbr"], Ok(both));
        assert_eq!(finding.severity, Severity::Advice);
        assert_eq!(finding.fix.unwrap().changes[0].value, "reno bbr cubic");
        let commands = judge_allowed(Ok(&["reno"]), &["reno", "bbr"], Ok(both)).fix.unwrap().commands;
        assert_eq!(commands[0], "modprobe tcp_cubic");
        // Debian's kernel: bbr is a module that nothing has loaded.
        let stock = ["reno", "cubic"];
        let fix = judge_allowed(Ok(&stock), &stock, Ok(both)).fix.unwrap();
        let setting = "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"";
        assert_eq!(fix.commands, ["modprobe tcp_bbr", setting]);
        let modules = fix.modules.unwrap();
        assert_eq!(modules.file, "/etc/modules-load.d/longhaul.conf");
        assert_eq!(modules.lines, ["tcp_bbr"]);
        assert_eq!(fix.lasting.unwrap().file, "/etc/sysctl.d/99-zz-longhaul.conf");
        // One that is not known to be missing may be in the kernel: the setting is tried.
        let unknown = judge_allowed(Err("hidden"), &stock, Err("hidden"));
        assert_eq!(unknown.fix.unwrap().commands, [setting]);
    }

    #[test]
    fn control_that_this_kernel_lacks_is_no_command_but_said() {
        let reno = &["reno"];
        let current = fix("congestion control", |facts| {
            facts.congestion.current = Ok("reno".to_owned());
            (facts.congestion.available, facts.congestion.modules) = (Ok(names(reno)), Ok(Vec::new()));
        });
        for fix in [current, judge_allowed(Ok(reno), reno, Ok(&[])).fix.unwrap()] {
            assert!(fix.commands.is_empty() && fix.modules.is_none() && fix.changes.is_empty(), "{fix:?}");
            assert!(fix.note.contains("this kernel has no module tcp_cubic"), "{fix:?}");
            assert!(fix.note.contains("CONFIG_TCP_CONG_CUBIC"), "{fix:?}");
        }
        let fix = judge_allowed(Ok(reno), reno, Err("modules.dep: gone")).fix.unwrap();
        assert!(fix.note.contains("tcp_bbr cannot be loaded from here (modules.dep: gone)"), "{fix:?}");
        // What can be had is set without what cannot.
        let fix = judge_allowed(Ok(reno), reno, Ok(&["tcp_cubic"])).fix.unwrap();
        let setting = "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic\"";
        assert_eq!(fix.commands, ["modprobe tcp_cubic", setting]);
        assert!(fix.note.contains("no module tcp_bbr"), "{fix:?}");
    }
}
