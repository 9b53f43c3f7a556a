//! Early end because of an error: what is wrong, and who can fix it.

use std::fmt;

use miette::{Report, miette};
use vtax_container::{ClusterError, ContainerError, PodError};
use vtax_domain::BindError;
use vtax_lab::{PlanError, no_cable};
use vtax_libvirt::LibvirtError;
use vtax_store::StoreError;

/// Early end because of an error.
#[derive(Debug)]
pub struct Stop {
    blame: Blame,
    error: Report,
}

/// Party that can fix the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// Invalid user input; nothing was changed.
    Input,
    /// The machine, the kernel or a required program.
    Infrastructure,
    /// No error: the user has stopped it.
    User,
}

impl Stop {
    /// Creates an error that the user can fix.
    pub fn input(error: impl Into<Report>) -> Stop {
        Stop { blame: Blame::Input, error: error.into() }
    }

    /// Creates an error that requires a change of the machine.
    pub fn infrastructure(error: impl Into<Report>) -> Stop {
        Stop { blame: Blame::Infrastructure, error: error.into() }
    }

    /// Returns the underlying error, if it is an `E`.
    pub fn cause<E: std::error::Error + Send + Sync + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }

    /// Stopped by the user before there was anything to save.
    pub fn interrupted() -> Stop {
        Stop { blame: Blame::User, error: miette!(code = "stopped", "stopped before anything was measured") }
    }

    /// Returns the only error, or one with the text of each. The first one determines the code and who can fix it.
    pub(crate) fn of_all(stops: Vec<Stop>) -> Option<Stop> {
        let mut texts: Vec<String> = Vec::new();
        for text in stops.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let Stop { blame, error } = stops.into_iter().next()?;
        let error = match texts.len() {
            1 => error,
            count => error.wrap_err(format!("{count} endpoints cannot be used: {}", texts.join("; "))),
        };
        Some(Stop { blame, error })
    }

    /// Creates an error of a sink that saves the run in a store.
    pub(crate) fn of_sink(error: Report) -> Stop {
        error.downcast::<StoreError>().map_or_else(Stop::infrastructure, Stop::from)
    }

    /// The code of the error, if it has one.
    pub fn code(&self) -> Option<String> {
        self.error.code().map(|code| code.to_string())
    }

    /// Returns true if the user can fix it.
    pub(crate) fn is_of_input(&self) -> bool {
        self.blame == Blame::Input
    }

    /// Returns the exit status of a program ended by this.
    pub fn status(&self) -> u8 {
        // sysexits' EX_UNAVAILABLE is 69; a shell reports a program ended by SIGINT as 130.
        match self.blame {
            Blame::Input => 2,
            Blame::Infrastructure => 69,
            Blame::User => 130,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&told(&self.error))
    }
}

/// Returns an error with its causes, each once: many include the text of their cause.
pub(crate) fn told(error: &Report) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.contains(&cause) {
        true => text,
        false if text.is_empty() => cause,
        false => format!("{text}: {cause}"),
    })
}

/// Joins two errors. The code is that of the first.
pub(crate) fn and_then(first: Report, next: Report) -> Report {
    let text = format!("{}; and then: {}", told(&first), told(&next));
    first.wrap_err(text)
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        use StoreError::{Ambiguous, Complete, Directory, Empty, Extend, InUse, NotFound};
        match error {
            NotFound { .. } | Ambiguous { .. } | Empty { .. } | Directory(_) => Stop::input(error),
            Complete { .. } | Extend(_) | InUse { .. } => Stop::input(error),
            _ => Stop::infrastructure(error),
        }
    }
}

impl From<BindError> for Stop {
    fn from(error: BindError) -> Stop {
        if error.is_of_input() { Stop::input(error) } else { Stop::infrastructure(error) }
    }
}

impl From<LibvirtError> for Stop {
    fn from(error: LibvirtError) -> Stop {
        if error.is_of_input() { Stop::input(error) } else { Stop::infrastructure(error) }
    }
}

impl From<ContainerError> for Stop {
    fn from(error: ContainerError) -> Stop {
        if error.is_of_input() { Stop::input(error) } else { Stop::infrastructure(error) }
    }
}

impl From<PodError> for Stop {
    fn from(error: PodError) -> Stop {
        if error.is_of_input() { Stop::input(error) } else { Stop::infrastructure(error) }
    }
}

impl From<ClusterError> for Stop {
    fn from(error: ClusterError) -> Stop {
        if error.is_of_input() { Stop::input(error) } else { Stop::infrastructure(error) }
    }
}

impl From<PlanError> for Stop {
    fn from(error: PlanError) -> Stop {
        if is_of_machine(&error) { Stop::infrastructure(error) } else { Stop::input(error) }
    }
}

/// Returns whether this machine lacks something that a lab needs. Otherwise the lab asks for the
/// impossible.
fn is_of_machine(error: &PlanError) -> bool {
    match error {
        PlanError::Unsupported { method, unsupported, .. } => *unsupported != no_cable(*method),
        PlanError::NoWires(_) | PlanError::NoRate { .. } | PlanError::TooManyNamespaces { .. } => true,
        _ => false,
    }
}

/// Assigns the blame for an error: the user, or the machine.
pub trait Blamed<T> {
    /// The user can fix it.
    fn or_input(self) -> Result<T, Stop>;
    /// It requires a change of the machine.
    fn or_infrastructure(self) -> Result<T, Stop>;
}

impl<T, E: Into<Report>> Blamed<T> for Result<T, E> {
    fn or_input(self) -> Result<T, Stop> {
        self.map_err(Stop::input)
    }

    fn or_infrastructure(self) -> Result<T, Stop> {
        self.map_err(Stop::infrastructure)
    }
}

/// Adds a code and what vtax was doing to an error that has no code.
pub trait Coded<T> {
    /// Gives the error the code, and `what` vtax was doing.
    fn coded<W: fmt::Display>(self, code: &'static str, what: impl FnOnce() -> W) -> miette::Result<T>;
}

impl<T, E: fmt::Display> Coded<T> for Result<T, E> {
    fn coded<W: fmt::Display>(self, code: &'static str, what: impl FnOnce() -> W) -> miette::Result<T> {
        self.map_err(|error| miette!(code = code, "{}: {error}", what()))
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::method::{IoMethod, Unsupported};

    use super::*;

    #[test]
    fn missing_qemu_is_the_machine_s_and_a_missing_cable_the_user_s() {
        let guest = |unsupported| PlanError::Unsupported {
            kind: "guest",
            name: "g".parse().expect("a name"),
            method: IoMethod::Assigned,
            unsupported,
        };
        let no_qemu = Unsupported { why: "guests need QEMU".to_owned(), remedy: "install it".to_owned() };
        assert_eq!(Stop::from(guest(no_qemu)).blame, Blame::Infrastructure);
        assert_eq!(Stop::from(guest(no_cable(IoMethod::Assigned))).blame, Blame::Input);
    }

    #[test]
    fn a_cause_is_reported_once() {
        let gone = || miette!(code = "file", "the disk is gone");
        let own_words = gone().wrap_err("reading x: the disk is gone");
        assert_eq!(told(&own_words), "reading x: the disk is gone");
        let bare = gone().wrap_err("reading x");
        assert_eq!(told(&bare), "reading x: the disk is gone");
        assert_eq!(bare.code().expect("of the cause").to_string(), "file");
    }

    #[test]
    fn two_errors_are_both_reported_with_the_code_of_the_first() {
        let first = miette!(code = "disk-full", "no room").wrap_err("writing x");
        let both = and_then(first, miette!(code = "not-removed", "the lab stays"));
        assert_eq!(told(&both), "writing x: no room; and then: the lab stays");
        assert_eq!(both.code().expect("of the first").to_string(), "disk-full");
    }
}
