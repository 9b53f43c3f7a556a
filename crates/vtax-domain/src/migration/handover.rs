//! Which of the two hosts has the guest: pure decisions.
//!
//! One write decides. The target records that it owns the guest, if it is asked to take it and has loaded all of it.
//! Before that write the guest may run at the source only, and afterwards at the target only:
//!
//! - The target lets the vCPUs run only after it has recorded that it owns the guest.
//! - The source lets vCPUs that it has stopped run again only after the target has answered that it does not own the
//!   guest, and never will: it has no record of the attempt any more.
//!
//! So a source that has stopped its guest and cannot reach the target waits. That is the price for never running twice.

use serde::{Deserialize, Serialize};

/// Guest at the source, as its QEMU describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceGuest {
    /// Not all of it was sent.
    Here,
    /// The target has confirmed that it has loaded all of it.
    Sent,
    /// There is no QEMU any more, or none that answers.
    Gone,
}

/// Guest at the target, as its QEMU describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetGuest {
    Incomplete,
    Loaded,
}

/// Question to a target, which ends the attempt either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationEnd {
    /// Own the guest if all of it is loaded; else give it up.
    Take,
    /// Give the guest up, unless it is owned already.
    GiveUp,
}

/// Host that has the guest once the attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestOwner {
    Source,
    Target,
}

/// Durable state of an attempt at its target. None exists before it is prepared, and after it was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ArrivalPhase {
    Prepared,
    Owned,
}

/// Action of a target that is asked to end an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetAction {
    /// Records that it owns the guest, and lets it run.
    Own,
    /// Ends its QEMU, and forgets the attempt.
    Abandon,
    /// Changes nothing: it was decided before.
    Answer(GuestOwner),
}

impl SourceGuest {
    /// Returns what a source asks of the target to end an attempt. A guest that can run on here does.
    pub(super) fn question(self) -> MigrationEnd {
        match self {
            SourceGuest::Here => MigrationEnd::GiveUp,
            // It cannot run on here, but may be whole there.
            SourceGuest::Sent | SourceGuest::Gone => MigrationEnd::Take,
        }
    }
}

impl TargetAction {
    pub(super) fn of(phase: Option<ArrivalPhase>, guest: TargetGuest, asked: MigrationEnd) -> TargetAction {
        match (phase, guest, asked) {
            (None, ..) => TargetAction::Answer(GuestOwner::Source),
            (Some(ArrivalPhase::Owned), ..) => TargetAction::Answer(GuestOwner::Target),
            (Some(ArrivalPhase::Prepared), TargetGuest::Loaded, MigrationEnd::Take) => TargetAction::Own,
            (Some(ArrivalPhase::Prepared), ..) => TargetAction::Abandon,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;

    /// vCPUs at one side.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Side {
        Runs,
        Stopped,
        /// Stopped, and the migration is complete.
        Complete,
        Dead,
    }

    /// Both QEMUs, both records, and the message between the hosts. Who moves the domain isn't part of it: anybody may ask at
    /// any time, and whoever has asked may die before the answer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct World {
        source: Side,
        target: Side,
        arrival: Option<ArrivalPhase>,
        departure: bool,
        question: Option<MigrationEnd>,
        kills: u8,
        /// A QEMU was killed that alone had the guest, or soon would have.
        may_be_lost: bool,
    }

    impl World {
        const START: World = World {
            source: Side::Runs,
            target: Side::Stopped,
            arrival: Some(ArrivalPhase::Prepared),
            departure: true,
            question: None,
            kills: 0,
            may_be_lost: false,
        };

        fn source_guest(self) -> SourceGuest {
            match self.source {
                Side::Runs | Side::Stopped => SourceGuest::Here,
                Side::Complete => SourceGuest::Sent,
                Side::Dead => SourceGuest::Gone,
            }
        }

        /// Returns the states after an action of QEMU alone: it stops for the switchover, loads, confirms.
        fn transfers(self) -> Vec<World> {
            let mut next = Vec::new();
            if self.source == Side::Runs && self.target == Side::Stopped {
                next.push(World { source: Side::Stopped, ..self });
            }
            if self.source == Side::Stopped && self.target == Side::Stopped {
                // The last byte arrives; the confirmation may still get lost.
                next.push(World { target: Side::Complete, ..self });
            }
            if self.source == Side::Stopped && self.target == Side::Complete {
                next.push(World { source: Side::Complete, ..self });
            }
            // QEMU resumes a guest whose target has gone before the migration was complete.
            if self.source == Side::Stopped && self.target == Side::Dead {
                next.push(World { source: Side::Runs, ..self });
            }
            next
        }

        fn asks(self) -> Option<World> {
            let question = Some(self.source_guest().question());
            (self.departure && self.question.is_none()).then_some(World { question, ..self })
        }

        fn answers(self) -> Vec<World> {
            let Some(question) = self.question else { return Vec::new() };
            let guest = if self.target == Side::Complete { TargetGuest::Loaded } else { TargetGuest::Incomplete };
            let then = World { question: None, ..self };
            let (after, owner) = match TargetAction::of(self.arrival, guest, question) {
                TargetAction::Own => (World { arrival: Some(ArrivalPhase::Owned), ..then }, GuestOwner::Target),
                TargetAction::Abandon => (World { arrival: None, target: Side::Dead, ..then }, GuestOwner::Source),
                TargetAction::Answer(owner) => (then, owner),
            };
            // The answer arrives, or is lost together with whoever has asked.
            vec![after.hears(owner), after]
        }

        /// Returns the state after the source has got an answer.
        fn hears(self, owner: GuestOwner) -> World {
            let source = match (owner, self.source) {
                (_, Side::Dead) | (GuestOwner::Target, _) => Side::Dead,
                (GuestOwner::Source, _) => Side::Runs,
            };
            World { source, departure: false, ..self }
        }

        /// Returns the states after an action of the target alone: its guest runs once it owns it, and it may give up what
        /// it does not own.
        fn target_alone(self) -> Vec<World> {
            let mut next = Vec::new();
            if self.arrival == Some(ArrivalPhase::Owned) && self.target == Side::Complete {
                next.push(World { target: Side::Runs, ..self });
            }
            if self.arrival == Some(ArrivalPhase::Prepared) {
                next.push(World { arrival: None, target: Side::Dead, ..self });
            }
            next
        }

        /// Returns all that can happen without a kill.
        fn events(self) -> Vec<World> {
            let asks = self.asks().into_iter().collect();
            [self.transfers(), asks, self.answers(), self.target_alone()].concat()
        }

        fn kills(self) -> Vec<World> {
            let (kills, owns) = (self.kills + 1, self.arrival == Some(ArrivalPhase::Owned));
            let of_source = World { source: Side::Dead, kills, may_be_lost: self.may_be_lost || !owns, ..self };
            let of_target = World { target: Side::Dead, kills, may_be_lost: self.may_be_lost || owns, ..self };
            let live = [(self.source, of_source), (self.target, of_target)];
            let killed = live.into_iter().filter(|(side, _)| self.kills < 2 && *side != Side::Dead);
            killed.map(|(_, world)| world).collect()
        }
    }

    /// Searches every order of events, with up to two kills at any moment.
    #[test]
    fn the_guest_never_runs_twice_and_is_lost_only_with_a_qemu_that_had_it() {
        let (mut seen, mut queue) = (HashSet::from([World::START]), VecDeque::from([World::START]));
        let mut ends = Vec::new();
        while let Some(world) = queue.pop_front() {
            let events = world.events();
            let runs = [world.source, world.target].iter().filter(|side| **side == Side::Runs).count();
            assert!(runs < 2, "both run: {world:?}");
            if events.is_empty() {
                assert!(runs == 1 || world.may_be_lost, "it is lost: {world:?}");
                assert!(!world.departure, "the source waits for ever: {world:?}");
                ends.push((world.source, world.target));
            }
            for next in events.into_iter().chain(world.kills()) {
                if seen.insert(next) {
                    queue.push_back(next);
                }
            }
        }
        for end in [(Side::Runs, Side::Dead), (Side::Dead, Side::Runs), (Side::Dead, Side::Dead)] {
            assert!(ends.contains(&end), "{end:?} is not among {ends:?}");
        }
    }
}
