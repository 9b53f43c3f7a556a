//! Options that put a command into a mode in which only some of its options apply.
//!
//! In its usual mode, a command uses each of its options or refuses it with a reason. With an option of [`MODES`], it
//! uses only the options listed there; clap refuses all others before anything is changed. An option added to the
//! command later is refused, too, until it is listed here.

use clap::{Arg, Command, Id};

/// A mode of a command.
pub(super) struct Mode {
    /// The words of the command.
    pub(super) verb: &'static str,
    /// The id of the option that chooses the mode.
    pub(super) option: &'static str,
    /// The ids of the options that the mode uses, in groups.
    pub(super) uses: &'static [&'static [&'static str]],
}

/// The options for the form of a result.
const FORM: [&str; 7] = ["detail", "explain", "bars", "json", "markdown", "csv", "format"];

pub(super) const MODES: [Mode; 10] = [
    // The stored run defines its study, changes, CPUs and label.
    Mode { verb: "run", option: "resume", uses: &[&["samples", "kernel", "dir", "published", "no_published"], &FORM] },
    Mode { verb: "tune prove", option: "resume", uses: &[&["show", "budget", "keep_none", "write", "json"]] },
    // The file lists the settings; no rule is evaluated.
    Mode { verb: "tune apply", option: "file", uses: &[&["host", "confirm_within", "persist", "dry_run", "json"]] },
    Mode {
        verb: "measure",
        option: "disk",
        uses: &[
            &["disk_test", "destroy_data", "within", "samples", "duration", "warmup", "quick", "seed"],
            &["confidence", "width", "min", "max", "label"],
            &FORM,
        ],
    },
    // A page always includes its legend and all details.
    Mode {
        verb: "report",
        option: "html",
        uses: &[&["ids", "svg", "png", "published", "no_published", "detail", "explain", "bars"]],
    },
    Mode { verb: "report", option: "svg", uses: &[&["ids", "html", "png"]] },
    Mode { verb: "report", option: "png", uses: &[&["ids", "html", "svg"]] },
    Mode { verb: "results trend", option: "html", uses: &[&TREND, &["svg"]] },
    Mode { verb: "results trend", option: "svg", uses: &[&TREND, &["html"]] },
    // The file has all requirements.
    Mode { verb: "advise", option: "file", uses: &[&["mtu", "cable", "measure", "budget", "dry_run", "html", "json"]] },
];

/// The options that choose a trend.
const TREND: [&str; 5] = ["study", "cell", "metric", "machine", "all_machines"];

/// Returns the command `verb`, which refuses the options that its modes do not use.
pub(super) fn with_modes(command: Command, verb: &str) -> Command {
    let modes = MODES.iter().filter(|mode| mode.verb == verb);
    modes.fold(command, |command, mode| {
        let unused: Vec<Id> = command.get_arguments().map(Arg::get_id).filter(|id| mode.refuses(id)).cloned().collect();
        command.mut_arg(mode.option, |option| option.conflicts_with_all(unused))
    })
}

impl Mode {
    fn uses(&self, id: &str) -> bool {
        self.uses.iter().any(|group| group.contains(&id))
    }

    fn refuses(&self, id: &Id) -> bool {
        *id != self.option && !self.uses(id.as_str())
    }
}

#[cfg(test)]
mod tests;
