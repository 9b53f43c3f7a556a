//! Facts about this machine on which a size depends.

use vtax_host::inspect::{CpuTopology, SystemRoot};
use vtax_model::run::Environment;

/// Cores of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CoreFacts {
    /// Threads of a core, at least 1.
    pub(super) threads: u32,
    /// Highest clock in GHz, if reported.
    pub(super) clock_ghz: Option<f64>,
}

impl CoreFacts {
    pub(super) fn of(tree: &SystemRoot, environment: &Environment) -> CoreFacts {
        let cores = CpuTopology::of(tree).cores;
        let most = cores.iter().map(|core| core.iter().count() as u32).max();
        // A kernel that doesn't report siblings has one group of all CPUs.
        let threads = most.filter(|_| environment.smt.raw() == "on").unwrap_or(1).max(1);
        CoreFacts { threads, clock_ghz: highest_ghz(environment.frequency_mhz.raw()) }
    }
}

/// Returns the highest frequency of a text such as `800-2000 of 800-3500`.
fn highest_ghz(megahertz: &str) -> Option<f64> {
    let numbers = megahertz.split(|letter: char| !letter.is_ascii_digit()).filter_map(|text| text.parse::<u32>().ok());
    numbers.max().filter(|most| *most > 0).map(|most| f64::from(most) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(smt: &str, siblings: &str) -> CoreFacts {
        let cpu = |number: u32| {
            let path = format!("sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
            (path, siblings.to_owned())
        };
        let online = ("sys/devices/system/cpu/online".to_owned(), "0-1\n".to_owned());
        let tree = SystemRoot::invented([online, cpu(0), cpu(1)]);
        let environment =
            Environment { smt: smt.into(), frequency_mhz: "800-2000 of 800-3500".into(), ..Environment::default() };
        CoreFacts::of(&tree, &environment)
    }

    #[test]
    fn siblings_are_threads_of_a_core_where_they_are_on() {
        assert_eq!(facts("on", "0-1\n"), CoreFacts { threads: 2, clock_ghz: Some(3.5) });
        assert_eq!(facts("notsupported", "0-1\n").threads, 1);
    }

    #[test]
    fn an_unknown_clock_is_none() {
        assert_eq!((highest_ghz(""), highest_ghz("unknown"), highest_ghz("2500")), (None, None, Some(2.5)));
    }
}
