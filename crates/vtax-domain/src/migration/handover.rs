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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    use std::collections::{BTreeSet, VecDeque};

    use super::*;

    /// vCPUs at one side.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Side {
        Runs,
        Stopped,
        /// Stopped, and the migration is complete.
        Complete,
        Dead,
    }

    /// Everything that a crash leaves, and who is alive. Booleans keep the type small; each is one process or message.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    struct World {
        source: Side,
        target: Side,
        /// 0: none, 1: prepared, 2: owned.
        arrival: u8,
        departure: bool,
        /// Process that migrates the domain.
        mover: bool,
        /// Question on its way: 0 none, 1 take, 2 give up. A reply may be lost.
        asked: u8,
        kills: u8,
    }

    impl World {
        const START: World = World {
            source: Side::Runs,
            target: Side::Stopped,
            arrival: 1,
            departure: true,
            mover: true,
            asked: 0,
            kills: 0,
        };

        fn source_guest(self) -> SourceGuest {
            match self.source {
                Side::Runs | Side::Stopped => SourceGuest::Here,
                Side::Complete => SourceGuest::Sent,
                Side::Dead => SourceGuest::Gone,
            }
        }

        fn phase(self) -> Option<ArrivalPhase> {
            [None, Some(ArrivalPhase::Prepared), Some(ArrivalPhase::Owned)][usize::from(self.arrival)]
        }

        /// Returns what QEMU may do on its own accord: stop for the switchover, load, confirm.
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

        fn asks(self) -> Vec<World> {
            if !self.departure || self.asked != 0 {
                return Vec::new();
            }
            // The mover waits for its QEMU; somebody who settles asks at any time.
            let asked = match self.source_guest().question() {
                MigrationEnd::Take => 1,
                MigrationEnd::GiveUp => 2,
            };
            vec![World { asked, ..self }]
        }

        fn answers(self) -> Vec<World> {
            let question = match self.asked {
                0 => return Vec::new(),
                1 => MigrationEnd::Take,
                _ => MigrationEnd::GiveUp,
            };
            let guest = if self.target == Side::Complete { TargetGuest::Loaded } else { TargetGuest::Incomplete };
            let then = World { asked: 0, ..self };
            let (after, owner) = match TargetAction::of(self.phase(), guest, question) {
                TargetAction::Own => (World { arrival: 2, ..then }, GuestOwner::Target),
                TargetAction::Abandon => (World { arrival: 0, target: Side::Dead, ..then }, GuestOwner::Source),
                TargetAction::Answer(owner) => (then, owner),
            };
            // The answer arrives, or is lost together with whoever has asked.
            vec![after.hears(owner), World { mover: false, ..after }]
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
            if self.arrival == 2 && self.target == Side::Complete {
                next.push(World { target: Side::Runs, ..self });
            }
            if self.arrival == 1 {
                next.push(World { arrival: 0, target: Side::Dead, ..self });
            }
            next
        }

        fn crashes(self) -> Vec<World> {
            if self.kills == 2 {
                return Vec::new();
            }
            let kills = self.kills + 1;
            let killed = [
                World { source: Side::Dead, kills, ..self },
                World { target: Side::Dead, kills, ..self },
                World { mover: false, kills, ..self },
            ];
            killed
                .into_iter()
                .filter(|world| (world.source, world.target, world.mover) != (self.source, self.target, self.mover))
                .collect()
        }
    }

    /// Searches every order of events with up to two kills at any moment.
    #[test]
    fn the_guest_never_runs_twice_and_is_lost_only_with_a_qemu_that_had_it() {
        let (mut seen, mut queue) = (BTreeSet::from([World::START]), VecDeque::from([World::START]));
        let mut ends = 0;
        while let Some(world) = queue.pop_front() {
            assert!((world.source, world.target) != (Side::Runs, Side::Runs), "both run: {world:?}");
            let own = [world.transfers(), world.asks(), world.answers(), world.target_alone()].concat();
            if own.is_empty() {
                ends += 1;
                let runs = [world.source, world.target].iter().filter(|side| **side == Side::Runs).count();
                assert!(runs == 1 || world.kills > 0, "nobody runs without a kill: {world:?}");
                assert!(!world.departure, "the source waits for ever: {world:?}");
            }
            for next in own.into_iter().chain(world.crashes()) {
                if seen.insert(next) {
                    queue.push_back(next);
                }
            }
        }
        assert!(seen.len() > 100 && ends > 3, "{} states, {ends} ends", seen.len());
    }

    #[test]
    fn a_kill_of_the_mover_alone_never_loses_the_guest() {
        let (mut seen, mut queue) = (BTreeSet::from([World::START]), VecDeque::from([World::START]));
        while let Some(world) = queue.pop_front() {
            let own = [world.transfers(), world.asks(), world.answers(), world.target_alone()].concat();
            let runs = [world.source, world.target].iter().filter(|side| **side == Side::Runs).count();
            assert!(!own.is_empty() || runs == 1, "lost: {world:?}");
            for next in own.into_iter().chain([World { mover: false, ..world }]) {
                if seen.insert(next) {
                    queue.push_back(next);
                }
            }
        }
    }
}
