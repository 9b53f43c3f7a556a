//! Job in the background: the load of one test while another one is measured.
//!
//! It is another process of this program, so that neither waits for the other. It stores nothing: its samples are disturbed on
//! purpose. The kernel kills it when the thread ends that started it.

use std::{
    env,
    io::Read,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use miette::miette;
use vtax_sys::{
    inherit::die_with_parent,
    process::{Pid, ProcessId, Signal},
};

use crate::{
    event_lines::LineReader,
    events::RunEvent,
    job::{HandedJob, Job},
    locations::Locations,
    server::JOB_VERB,
    stop::{Blamed, Coded, Stop},
};

/// Job that runs in the background. Dropping it stops it.
#[derive(Debug)]
pub struct BackgroundJob {
    child: Child,
    id: ProcessId,
    /// Open as long as the job runs, since it writes its events there.
    output: ChildStdout,
    _handed: HandedJob,
}

/// Time from the beginning of a sample until its load is complete: fio starts, connections are made.
const START: Duration = Duration::from_secs(1);
/// Time limit for a job to end its sample and to restore its changes.
const END: Duration = Duration::from_secs(30);

impl BackgroundJob {
    /// Starts a job, and waits until its first sample has begun.
    pub fn begin(job: &Job, locations: &Locations) -> Result<BackgroundJob, Stop> {
        let handed = HandedJob::write(&locations.state_dir()?, job, None).or_infrastructure()?;
        let program = env::current_exe().coded("kernel", || "finding the program of this process");
        let mut command = Command::new(program.or_infrastructure()?);
        let places = [("--state", &locations.state), ("--agent", &locations.agent)];
        for (option, place) in places {
            command.args(place.iter().flat_map(|place| [option.as_ref(), place.as_os_str()]));
        }
        command.arg(JOB_VERB).arg(&handed.path).stdin(Stdio::null()).stdout(Stdio::piped());
        die_with_parent(&mut command);
        let child = command.spawn().coded("kernel", || "starting the background load");
        let mut child = child.or_infrastructure()?;
        let id = ProcessId::of(Pid(child.id())).or_infrastructure()?;
        let output = child.stdout.take().ok_or_else(|| ended("has no output")).or_infrastructure()?;
        let mut begun = BackgroundJob { child, id, output, _handed: handed };
        begun.wait_for_sample()?;
        thread::sleep(START);
        Ok(begun)
    }

    fn wait_for_sample(&mut self) -> Result<(), Stop> {
        let (mut reader, mut bytes) = (LineReader::default(), [0; 1 << 12]);
        loop {
            let read = self.output.read(&mut bytes).coded("kernel", || "reading from the background load");
            let read = read.or_infrastructure()?;
            if read == 0 {
                return Err(ended("exited before its first sample; its error is above")).or_infrastructure();
            }
            let events = reader.push(&bytes[..read]).or_infrastructure()?;
            if events.iter().any(|event| matches!(event, RunEvent::Progress(_))) {
                return Ok(());
            }
        }
    }

    /// Stops the job. A job that has already ended is an error: then there was no load in the
    /// background.
    pub fn end(mut self) -> Result<(), Stop> {
        match self.child.try_wait().coded("kernel", || "waiting for the background load").or_infrastructure()? {
            None => Ok(()),
            Some(_) => Err(ended("exited before the end of the measurement; its error is above")).or_infrastructure(),
        }
    }
}

impl Drop for BackgroundJob {
    fn drop(&mut self) {
        // Whatever it cannot restore in time, the next vtax restores.
        let stopped = self.id.signal(Signal::INT).and_then(|_| self.id.wait_end(END));
        if !matches!(stopped, Ok(true)) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn ended(what: &str) -> miette::Report {
    miette!(code = "sample-failed", "the background load {what}; run the proof again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_end_has_a_remedy() {
        let told = ended("ended before the measurement").to_string();
        assert_eq!(told, "the background load ended before the measurement; run the proof again");
    }
}
