//! Options that give their verb another mode, in which it has no use for all of its options.
//!
//! In its usual mode a verb uses each of its options, or refuses it for a reason that it tells. With an option of
//! [`MODES`], it uses the options that stand there. clap refuses every other one before anything is done, and so it
//! does an option that is added to the verb later, until it is named here.

use clap::{Arg, Command, Id};

/// A mode of a verb.
pub(super) struct Mode {
    /// The words of the verb.
    pub(super) verb: &'static str,
    /// The option that chooses the mode, by its id.
    pub(super) option: &'static str,
    /// The options that the mode uses, by their ids.
    pub(super) uses: &'static [&'static str],
}

pub(super) const MODES: [Mode; 9] = [
    // The run has its study, its changes, its CPUs and its label.
    Mode {
        verb: "run",
        option: "resume",
        uses: &[
            "samples",
            "kernel",
            "dir",
            "published",
            "no_published",
            "detail",
            "explain",
            "bars",
            "json",
            "markdown",
            "csv",
            "format",
        ],
    },
    Mode { verb: "tune prove", option: "resume", uses: &["show", "budget", "keep_none", "write", "json"] },
    // A file has its settings; the rules aren't asked for any.
    Mode { verb: "tune apply", option: "file", uses: &["host", "confirm_within", "persist", "dry_run", "json"] },
    Mode {
        verb: "measure",
        option: "disk",
        uses: &[
            "disk_test",
            "destroy_data",
            "within",
            "samples",
            "duration",
            "warmup",
            "quick",
            "seed",
            "confidence",
            "width",
            "min",
            "max",
            "label",
            "detail",
            "explain",
            "bars",
            "json",
            "markdown",
            "csv",
            "format",
        ],
    },
    // A page explains itself and has every detail, asked for or not.
    Mode {
        verb: "report",
        option: "html",
        uses: &["ids", "svg", "png", "published", "no_published", "detail", "explain", "bars"],
    },
    Mode { verb: "report", option: "svg", uses: &["ids", "html", "png"] },
    Mode { verb: "report", option: "png", uses: &["ids", "html", "svg"] },
    Mode {
        verb: "results trend",
        option: "html",
        uses: &["study", "cell", "metric", "machine", "all_machines", "svg"],
    },
    Mode {
        verb: "results trend",
        option: "svg",
        uses: &["study", "cell", "metric", "machine", "all_machines", "html"],
    },
];

/// The command `verb`, which refuses what its modes don't use.
pub(super) fn with_modes(command: Command, verb: &str) -> Command {
    let modes = MODES.iter().filter(|mode| mode.verb == verb);
    modes.fold(command, |command, mode| {
        let unused: Vec<Id> = command.get_arguments().map(Arg::get_id).filter(|id| mode.refuses(id)).cloned().collect();
        command.mut_arg(mode.option, |option| option.conflicts_with_all(unused))
    })
}

impl Mode {
    fn refuses(&self, id: &Id) -> bool {
        *id != self.option && !self.uses.contains(&id.as_str())
    }
}

#[cfg(test)]
mod tests;
