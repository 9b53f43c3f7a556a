//! Decides which of the two hosts has the guest, by pure functions.
//!
//! One write decides. The target records that it owns the guest when it is asked to take it and has loaded all of it.
//! Before that write the guest may run only at the source, and afterwards only at the target:
//!
//! - The target lets the vCPUs run only after it has recorded that it owns the guest.
//!
//! - The source resumes vCPUs that it has stopped only after the target has answered that it doesn't own the guest and
//!   never will: it no longer has a record of the attempt.
//!
//! So a source that has stopped its guest and cannot reach the target waits. That is the price of never running twice.

use serde::{Deserialize, Serialize};

/// Guest at the source, as described by its QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceGuest {
    /// Not everything was sent.
    Here,
    /// The target has confirmed that it has loaded all of it.
    Sent,
    /// There is no QEMU, or it doesn't answer.
    Gone,
}

/// Guest at the target, as described by its QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetGuest {
    Incomplete,
    Loaded,
}

/// Request to a target, which ends the attempt either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationEnd {
    /// Take ownership of the guest if it is fully loaded; otherwise abandon it.
    Take,
    /// Abandon the guest, unless it is already owned.
    GiveUp,
}

/// Host that has the guest once the attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestOwner {
    Source,
    Target,
}

/// Durable state of an attempt at its target. None exists before it is prepared, or after it was abandoned.
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
    /// Changes nothing: it was already decided.
    Answer(GuestOwner),
}

impl SourceGuest {
    /// Returns the source's request to the target for ending an attempt. If the guest can continue here, the request is
    /// to abandon it.
    pub(super) fn question(self) -> MigrationEnd {
        match self {
            SourceGuest::Here => MigrationEnd::GiveUp,
            // It cannot continue here, but may be complete there.
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

    /// Both QEMUs, both records, and the message between the hosts. The process that moves the domain isn't part of it:
    /// any process may ask at any time, and may die before the answer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct World {
        source: Side,
        target: Side,
        arrival: Option<ArrivalPhase>,
        departure: bool,
        question: Option<MigrationEnd>,
        kills: u8,
        /// A QEMU was killed that had, or was about to have, the only guest.
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
                // The last byte arrives; the confirmation may still be lost.
                next.push(World { target: Side::Complete, ..self });
            }
            if self.source == Side::Stopped && self.target == Side::Complete {
                next.push(World { source: Side::Complete, ..self });
            }
            // QEMU resumes a guest if its target exits before the migration is complete.
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
            // The answer arrives, or is lost together with the process that asked.
            vec![after.hears(owner), after]
        }

        /// Returns the state after the source has received an answer.
        fn hears(self, owner: GuestOwner) -> World {
            let source = match (owner, self.source) {
                (_, Side::Dead) | (GuestOwner::Target, _) => Side::Dead,
                (GuestOwner::Source, _) => Side::Runs,
            };
            World { source, departure: false, ..self }
        }

        /// Returns the states after an action of the target alone: its guest runs once it owns it, and it may abandon
        /// an unowned one.
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

        /// Returns all possible events except kills.
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
