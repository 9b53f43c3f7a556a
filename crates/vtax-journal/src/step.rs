//! The steps of a job.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// One change to the machine, and how to undo it.
pub trait Step: fmt::Debug + Serialize + DeserializeOwned {
    /// The world that the step changes; in tests, a fake.
    type World;
    /// Data that `apply` passes to `undo`, such as the identity that the kernel gave to a new object. It
    /// is written to the journal.
    type Receipt: fmt::Debug + Serialize + DeserializeOwned;
    /// The error of a failed change.
    type Error: std::error::Error + Send + Sync + 'static;

    /// One line for people, such as "create bridge vsw0 in sut".
    fn describe(&self) -> String;

    /// Makes the change.
    ///
    /// # Errors
    /// The step may be half done then, so the executor calls [`Step::undo`] on it, too.
    fn apply(&self, world: &mut Self::World) -> Result<Self::Receipt, Self::Error>;

    /// Checks that the change is there. The default is enough for a change that the kernel acknowledges or
    /// that is checked together with others later.
    fn read_back(&self, receipt: &Self::Receipt, world: &mut Self::World) -> Result<(), Self::Error> {
        let _ = (receipt, world);
        Ok(())
    }

    /// Undoes the change, whether it was made in full, in part or not at all.
    ///
    /// Without a receipt, the step failed or was interrupted, perhaps before it did anything. Existing objects may then
    /// have been there before and belong to someone else. The step must be able to recognize them (by the kernel's
    /// mark, or by a path that only its owner writes) and leave them alone.
    fn undo(&self, receipt: Option<&Self::Receipt>, world: &mut Self::World) -> Result<Undone, Self::Error>;

    /// Returns true if this step changes the same value as the other one. If so, a batch with the earlier of the two is
    /// undone only after the batch with the later one.
    fn changes_the_same(&self, other: &Self) -> bool {
        let _ = other;
        false
    }

    /// Puts away what all steps shared, such as a directory. It is called when every step is undone, and before the
    /// journal is removed.
    fn finish(world: &mut Self::World) {
        let _ = world;
    }
}

/// The result of undoing a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undone {
    /// The change was there and was undone.
    Reverted,
    /// There was nothing to undo.
    AlreadyGone,
    /// The change disappears with the object that contains it (a link with its namespace). An earlier step of
    /// the same journal made this object, and is undone next.
    Contained,
    /// Neither the change nor the previous state was found: someone else has changed the object since. It was left
    /// unchanged, and nothing of ours is left.
    Foreign {
        /// The value found, in words.
        found: String,
    },
}
