//! The rounds of a prepared run: a pilot if one is needed, then the rest.

use std::time::Instant;

use vtax_lab::World;
use vtax_model::run::{Goal, RunState};

use super::{PreparedRun, RunSetup, biased};
use crate::{
    events::{RunEvent, SessionEnd},
    job::RanJob,
    stop::and_then,
    study::{
        forecast::{self, PILOT, Piloted},
        foretell,
        others::OtherProgramsWatch,
        runner::{self, Ended, Pace, RunSurroundings, Sampler},
    },
};

impl PreparedRun {
    /// Takes the samples, and disconnects the endpoints.
    pub(super) fn measure(mut self, setup: &RunSetup<'_>, begun: Instant) -> RanJob {
        let RunSetup { events, phases, interrupt, .. } = setup;
        self.path.break_off_on(interrupt);
        let left = runner::samples_left(&self.run);
        events.tell(format_args!("run {}: {left} samples to take", self.run.header.id));
        let stop_asked = || interrupt.asked();
        let (pace, until) = (Pace::new(left), self.time_ends(begun));
        // Guests may outlive the process that started them, so they are identified by their
        // directory.
        let others = OtherProgramsWatch::new(setup.world.map(World::directory));
        let around = RunSurroundings { until, ..RunSurroundings::new(events, &stop_asked, pace, others) };
        let ended = self.rounds(around);
        // Only now: nothing is printed while a sample is taken.
        if let Some(at) = self.path.first_sample().filter(|_| self.path.has_lab_guests()) {
            phases.done_at("first sample started", at);
        }
        let PreparedRun { mut run, path, shortfalls, .. } = self;
        // First, so that the host is restored whatever error the disk reports.
        let lab = path.down();
        let seconds = begun.elapsed().as_secs_f64();
        run.state = ended.state;
        run.wall_seconds += seconds;
        let end = SessionEnd { state: ended.state, wall_seconds: seconds, shortfalls: shortfalls.clone() };
        let told = events.send(&RunEvent::End(end));
        let error = [ended.error, lab.err(), told.err()].into_iter().flatten().reduce(and_then);
        RanJob { run, error, shortfalls }
    }

    fn rounds(&mut self, mut around: RunSurroundings<'_>) -> Ended {
        self.foretell(&around);
        let early = if self.needs_pilot { self.pilot(&mut around) } else { None };
        let ended = early.unwrap_or_else(|| self.run_rounds(&mut around));
        match (around.out_of_time, &ended.error) {
            (Some(rounds), None) => {
                let settled = forecast::settle_by_time(&mut self.run.header, rounds);
                self.tell(settled, &around);
                self.keep_plan(&around).unwrap_or(ended)
            }
            _ => ended,
        }
    }

    /// Estimates what the budget of a run that tries settings can show, before its first sample.
    fn foretell(&mut self, around: &RunSurroundings<'_>) {
        let header = &self.run.header;
        let Some(goal) = header.unsettled.filter(|_| self.run.samples.is_empty()) else { return };
        let Some(plan) = foretell::plan(header, goal) else { return };
        let Sampler::Net(ends) = self.path.sampler() else { return };
        let begun = Instant::now();
        let Some(known) = foretell::measure(plan, ends, around.stop_asked) else { return };
        let known = known.delayed(begun.elapsed().as_secs_f64(), self.path.switch_time().as_secs_f64());
        around.events.tell(forecast::foretold(header, &known, goal));
    }

    fn run_rounds(&mut self, around: &mut RunSurroundings<'_>) -> Ended {
        runner::run_rounds(&mut self.run, self.path.sampler(), around)
    }

    /// Returns when a pilot has used up the budget, or a run the limit of its plan. A run that tries settings needs all
    /// of its rounds: they show whether reverting the settings has after-effects.
    fn time_ends(&self, begun: Instant) -> Option<Instant> {
        let header = &self.run.header;
        let goal = header.unsettled.filter(|_| header.study.steps.is_empty());
        begun.checked_add(goal.map_or(header.plan.limit, Goal::budget)?.0)
    }

    /// Takes the first rounds. Some if the run ended with them. The stored plan stays complete in the meantime.
    fn pilot(&mut self, around: &mut RunSurroundings<'_>) -> Option<Ended> {
        let planned = self.run.header.clone();
        let plans = [Some(&mut self.run.header.plan), self.run.header.path_plan.as_mut()];
        plans.into_iter().flatten().for_each(|plan| plan.samples = plan.samples.min(PILOT));
        let ended = self.run_rounds(around);
        around.until = around.until.filter(|_| planned.plan.limit.is_some());
        self.run.header = planned;
        if ended.error.is_some() || ended.state != RunState::Complete {
            return Some(ended);
        }
        if let Some(error) = biased(&self.run) {
            return Some(Ended { state: RunState::Stopped, error: Some(error) });
        }
        if around.out_of_time.is_some() {
            return Some(ended);
        }
        let settles = self.run.header.unsettled.is_some();
        let piloted = forecast::settle_by_pilot(&mut self.run);
        self.tell(piloted, around);
        around.pace.set_left(runner::samples_left(&self.run));
        if settles { self.keep_plan(around) } else { None }
    }

    fn tell(&mut self, piloted: Piloted, around: &RunSurroundings<'_>) {
        piloted.line.iter().for_each(|line| around.events.tell(line));
        self.shortfalls.extend(piloted.shortfall);
    }

    /// Writes the plan, whose rounds are known now. Some if that fails.
    fn keep_plan(&self, around: &RunSurroundings<'_>) -> Option<Ended> {
        let kept = around.events.send(&RunEvent::plan(&self.run.header));
        kept.err().map(|error| Ended { state: RunState::Stopped, error: Some(error) })
    }
}
