//! What a job is made of.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// One change to the world, and its undoing.
pub trait Step: fmt::Debug + Serialize + DeserializeOwned {
    /// What the step acts on; a fake in tests.
    type World;
    /// What `apply` learned that `undo` needs, such as the identity that the kernel gave to
    /// a new object. Written to the journal.
    type Receipt: fmt::Debug + Serialize + DeserializeOwned;
    /// Why the world refused.
    type Error: std::error::Error + Send + Sync + 'static;

    /// One line for people, as "create bridge vsw0 in sut".
    fn describe(&self) -> String;

    /// Makes the change.
    ///
    /// # Errors
    /// The step may be half done then; the executor calls [`Step::undo`] on it, too.
    fn apply(&self, world: &mut Self::World) -> Result<Self::Receipt, Self::Error>;

    /// Looks whether the change is really there. A step whose change is acknowledged by the
    /// kernel, or checked in bulk later, needs no more than the default.
    fn read_back(&self, receipt: &Self::Receipt, world: &mut Self::World) -> Result<(), Self::Error> {
        let _ = (receipt, world);
        Ok(())
    }

    /// Takes the change back, whether it was made in full, in part or not at all.
    ///
    /// Without a receipt the step failed or was cut short, perhaps before it did anything.
    /// What is found then may be a stranger's that was there before; the step must be able
    /// to tell (by the kernel's mark, by a path that only its owner writes) and leave it.
    fn undo(&self, receipt: Option<&Self::Receipt>, world: &mut Self::World) -> Result<Undone, Self::Error>;
}

/// How a step came to be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undone {
    /// The change was there and was taken back.
    Reverted,
    /// There was nothing to take back.
    AlreadyGone,
    /// It goes with what holds it (a link with its namespace), which an earlier step of the
    /// same journal made and whose undoing follows.
    Contained,
}
