//! Connecting to many agents at the same time.

use std::{
    path::PathBuf,
    process::{Child, Command},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    link::AgentLink,
    ssh::{self, SshError},
};

/// The maximum number of concurrent connection attempts. All may go through one jump host, whose sshd begins to refuse
/// connections when 10 haven't authenticated yet (`MaxStartups`, sshd_config(5)).
const IN_FLIGHT_MOST: usize = 8;

/// An agent to connect to.
#[derive(Debug)]
pub struct AgentDial {
    way: DialWay,
    deadline: Duration,
}

#[derive(Debug)]
enum DialWay {
    Ssh { host: String, program: PathBuf },
    Program { name: String, command: Box<Command> },
    Child { name: String, child: Box<Child> },
}

impl AgentDial {
    /// Logs in to a host; see [`ssh::connect`].
    pub fn ssh(host: impl Into<String>, program: impl Into<PathBuf>, deadline: Duration) -> AgentDial {
        AgentDial { way: DialWay::Ssh { host: host.into(), program: program.into() }, deadline }
    }

    /// Starts an agent on this machine; see [`AgentLink::spawn`].
    pub fn program(name: impl Into<String>, command: Command, deadline: Duration) -> AgentDial {
        AgentDial { way: DialWay::Program { name: name.into(), command: Box::new(command) }, deadline }
    }

    /// Greets an agent that was started; see [`AgentLink::from_child`].
    pub fn child(name: impl Into<String>, child: Child, deadline: Duration) -> AgentDial {
        AgentDial { way: DialWay::Child { name: name.into(), child: Box::new(child) }, deadline }
    }

    /// Connects.
    pub(super) fn dial(self) -> Result<AgentLink, SshError> {
        match self.way {
            DialWay::Ssh { host, program } => ssh::connect(&host, &program, self.deadline),
            DialWay::Program { name, command } => Ok(AgentLink::spawn(&name, *command, self.deadline)?),
            DialWay::Child { name, child } => Ok(AgentLink::from_child(&name, *child, self.deadline)?),
        }
    }
}

/// Calls a function that takes time for each end, for up to 8 of them concurrently. Returns the results in the order of
/// the ends.
pub fn dial_all<T: Send, R: Send>(ends: Vec<T>, dial: impl Fn(T) -> R + Sync) -> Vec<R> {
    let workers = ends.len().min(IN_FLIGHT_MOST);
    let queue = Mutex::new(ends.into_iter().enumerate());
    let results = Mutex::new(Vec::new());
    // The lock isn't held while an end is dialled.
    let next = || locked(&queue).next();
    let work = || {
        while let Some((position, end)) = next() {
            let result = dial(end);
            locked(&results).push((position, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..workers {
            // With fewer threads it takes longer.
            let _ = thread::Builder::new().name("dial".into()).spawn_scoped(scope, work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
