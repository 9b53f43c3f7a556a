//! `vtax advise --measure`: the runs that decide what is open.

use std::{
    env,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use miette::miette;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use vtax_model::{
    advice::{AdviceReport, DecidingCommand},
    units::Span,
};
use vtax_report::waiting;

use super::machine::AdvisedMachine;
use crate::{
    cli::Locations,
    exit::{Blamed, Coded, Exit, Stop},
    terminal::print,
};

/// Exit status of a run that the user has stopped.
const INTERRUPTED: i32 = 130;

/// Returns the commands that decide what is open, each once.
pub(super) fn commands(report: &AdviceReport) -> Vec<DecidingCommand> {
    let mut commands: Vec<DecidingCommand> = Vec::new();
    for command in report.rows.iter().flat_map(|row| &row.commands) {
        if !commands.contains(command) {
            commands.push(command.clone());
        }
    }
    commands
}

/// Commands that fit into a budget, in their order, and the number of the others.
struct ChosenCommands<'a> {
    commands: Vec<&'a DecidingCommand>,
    omitted: usize,
    seconds: f64,
}

impl ChosenCommands<'_> {
    fn of(commands: &[DecidingCommand], budget: Option<Span>) -> ChosenCommands<'_> {
        let budget = budget.map_or(f64::INFINITY, |budget| budget.0.as_secs_f64());
        let mut chosen = ChosenCommands { commands: Vec::new(), omitted: 0, seconds: 0.0 };
        for command in commands {
            if chosen.seconds + command.seconds <= budget {
                chosen.seconds += command.seconds;
                chosen.commands.push(command);
            } else {
                chosen.omitted += 1;
            }
        }
        chosen
    }

    fn told(&self) -> String {
        let runs = if self.commands.len() == 1 { "run" } else { "runs" };
        let omitted = match self.omitted {
            0 => String::new(),
            omitted => format!("; {omitted} omitted: more than --budget"),
        };
        format!("{} {runs}, about {}{omitted}", self.commands.len(), waiting(self.seconds))
    }

    /// Refuses a budget that no run fits into.
    fn checked(self) -> Result<Self, Stop> {
        if !self.commands.is_empty() || self.omitted == 0 {
            return Ok(self);
        }
        let why =
            "--budget: no run fits into this time; the commands and their run times: add --dry-run, omit --budget";
        Err(Stop::input(miette!(code = "budget-too-short", "{why}")))
    }
}

pub(super) fn print_commands(commands: &[DecidingCommand], budget: Option<Span>) -> Result<Exit, Stop> {
    let chosen = ChosenCommands::of(commands, budget).checked()?;
    tell!("{}", chosen.told());
    chosen.commands.iter().try_for_each(|command| print(&format!("{command}\n")))?;
    Ok(Exit::Done)
}

/// Runs the commands one after the other. Returns how this command ends, if the user has stopped it.
///
/// Each is a process: a process can enter the namespaces of an unprivileged user's labs only once.
pub(super) fn carry_out(
    commands: &[DecidingCommand],
    budget: Option<Span>,
    machine: &AdvisedMachine,
    places: &Locations,
) -> Result<Option<Exit>, Stop> {
    let chosen = ChosenCommands::of(commands, budget).checked()?;
    tell!("{}", chosen.told());
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&stopped)).coded("kernel", || "catching Ctrl-C").or_infrastructure()?;
    }
    for command in &chosen.commands {
        tell!("{command}");
        let status = child(command, machine, places)?.status().coded("kernel", || "starting vtax run");
        let code = status.or_infrastructure()?.code();
        if stopped.load(Ordering::Relaxed) || code == Some(INTERRUPTED) {
            return Ok(Some(Exit::Interrupted));
        }
        if !matches!(code, Some(0 | 1)) {
            tell!("warning: `{command}` failed; the requirements that it would have decided remain open");
        }
    }
    Ok(None)
}

fn child(command: &DecidingCommand, machine: &AdvisedMachine, places: &Locations) -> Result<Command, Stop> {
    let program = env::current_exe().coded("kernel", || "finding the program of this process").or_infrastructure()?;
    let line = command.to_string();
    let mut child = Command::new(program);
    child.args(line.split(' ').skip(1)).stdin(Stdio::null()).stdout(Stdio::null());
    // In the namespaces of an unprivileged user, vtax would otherwise take itself for root.
    child.env("VTAX_RUN", &machine.run_directory);
    for (option, path) in [("--state", &places.state), ("--agent", &places.agent)] {
        if let Some(path) = path {
            child.arg(option).arg(path);
        }
    }
    Ok(child)
}

#[cfg(test)]
mod tests {
    use vtax_model::{
        advice::{AdviceInput, Inventory, Requirements, advise},
        located::Source,
        units::Mtu,
    };

    use super::*;

    fn open() -> Vec<DecidingCommand> {
        let requirements = Requirements::parse(Source { name: "required.toml", text: "p99 = \"150us\"\n" });
        commands(&advise(&AdviceInput {
            requirements: &requirements.expect("good requirements"),
            inventory: &Inventory::default(),
            figures: &[],
            mtu: Mtu::ETHERNET,
            cable: None,
            now: 0,
        }))
    }

    #[test]
    fn each_command_is_run_once_and_understood() {
        let commands = open();
        assert!(commands.len() > 3, "{commands:?}");
        for (nth, command) in commands.iter().enumerate() {
            assert!(!commands[..nth].contains(command), "{command}");
            let line = command.to_string();
            crate::cli::arguments::read(line.split(' ').map(Into::into)).expect("a command");
        }
    }

    #[test]
    fn a_budget_omits_what_does_not_fit() {
        let commands = open();
        let all = ChosenCommands::of(&commands, None);
        assert_eq!((all.commands.len(), all.omitted), (commands.len(), 0));
        let half = ChosenCommands::of(&commands, Some(Span(std::time::Duration::from_secs_f64(all.seconds / 2.0))));
        assert!(half.omitted > 0 && !half.commands.is_empty() && half.seconds <= all.seconds / 2.0);
        assert_eq!(half.commands.len() + half.omitted, commands.len());
        let none = ChosenCommands::of(&commands, Some(Span::from_millis(1)));
        let refused = none.checked().err().expect("refused");
        assert!(refused.to_string().contains("--budget"), "{refused}");
    }
}
