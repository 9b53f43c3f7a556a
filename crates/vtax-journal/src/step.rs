//! Steps of a job.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Change to the machine that can be undone.
pub trait Step: fmt::Debug + Serialize + DeserializeOwned {
    /// World that the step changes; a fake in tests.
    type World;
    /// Data that `apply` passes to `undo`, e.g. the identity that the kernel gave to a new object. It is written to the
    /// journal.
    type Receipt: fmt::Debug + Serialize + DeserializeOwned;
    /// Error of a failed change.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns a description of one line, e.g. "create bridge vsw0 in sut".
    fn describe(&self) -> String;

    /// Makes the change.
    ///
    /// # Errors
    /// The step may then be half done, so the executor calls [`Step::undo`] for it, too.
    fn apply(&self, world: &mut Self::World) -> Result<Self::Receipt, Self::Error>;

    /// Checks that the change took effect. The default suffices for a change that the kernel acknowledges, or that is
    /// checked later together with others.
    fn read_back(&self, receipt: &Self::Receipt, world: &mut Self::World) -> Result<(), Self::Error> {
        let _ = (receipt, world);
        Ok(())
    }

    /// Undoes the change, whether it was made in full, in part or not at all.
    ///
    /// Without a receipt, the step failed or was interrupted, perhaps before it did anything. Objects found may then be
    /// older than the step and belong to someone else. The step must be able to recognize them (by a mark in the
    /// kernel, or by a path that only its owner writes) and leave them alone.
    fn undo(&self, receipt: Option<&Self::Receipt>, world: &mut Self::World) -> Result<Undone, Self::Error>;

    /// Returns `true` if this step changes the same value as the other one. A batch with the earlier of the two is then
    /// undone only after the batch with the later one.
    fn changes_the_same(&self, other: &Self) -> bool {
        let _ = other;
        false
    }

    /// Removes objects that all steps shared, e.g. a directory. Called when every step is undone, before the journal is
    /// removed.
    fn finish(world: &mut Self::World) {
        let _ = world;
    }
}

/// Result of undoing a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undone {
    /// The change was found and undone.
    Reverted,
    /// There was nothing to undo.
    AlreadyGone,
    /// The change disappears with the object that contains it (a link with its namespace). An earlier step of the same
    /// journal created this object, and is undone next.
    Contained,
    /// Neither the change nor the previous state was found: someone else has changed the object since. It was left
    /// unchanged, and nothing of ours is left.
    Foreign {
        /// Value found, in words.
        found: String,
    },
}
