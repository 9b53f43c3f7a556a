//! How a conversation begins: who is there, and of which version.

use serde::{Deserialize, Serialize};
use vtax_engine::Token;

/// The version of everything that is said over the control stream. Raise it with any change of it.
pub const PROTOCOL: u32 = 5;
/// The version of this program, as both sides must have it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `vtax-agent --version` prints, without the end of the line.
pub fn version_line() -> String {
    format!("vtax-agent {VERSION} (protocol {PROTOCOL})")
}

/// What both first frames have. These fields stay in every version, in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The sender's [`PROTOCOL`].
    pub protocol: u32,
    /// The sender's [`VERSION`].
    pub version: String,
}

impl Greeting {
    /// Of this program.
    pub fn ours() -> Greeting {
        Greeting { protocol: PROTOCOL, version: VERSION.to_owned() }
    }
}

/// The coordinator's first frame, in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Who it is.
    #[serde(flatten)]
    pub greeting: Greeting,
    /// The agent repeats it beside its [`Hello`]; empty if nobody will look.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

impl Opening {
    /// Of this program, with a key that nobody has had.
    pub fn ours() -> Opening {
        Opening { greeting: Greeting::ours(), key: Token::random().to_hex() }
    }
}

/// The agent's first frame, in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// Who it is.
    #[serde(flatten)]
    pub hello: Hello,
    /// Of the [`Opening`] that this answers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

/// A greeting, and who the agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// As in [`Greeting`].
    #[serde(flatten)]
    pub greeting: Greeting,
    /// The agent's process, in its own PID namespace.
    pub pid: u32,
    /// The name of the machine that it runs on.
    pub hostname: String,
    /// The release of the kernel that it runs on.
    pub kernel: String,
    /// Which start of which kernel that is (`/proc/sys/kernel/random/boot_id`, random(4)), and
    /// after a `/` the agent's time namespace if that isn't the first: who agrees in both reads
    /// one monotonic clock (time_namespaces(7)). Empty if the kernel doesn't tell.
    pub boot_id: String,
}

impl Hello {
    /// Whether both agents run on one kernel, whose CPU time must not be added up twice.
    pub fn one_machine(&self, other: &Hello) -> bool {
        !self.boot().is_empty() && self.boot() == other.boot()
    }

    /// Whether both agents read one monotonic clock.
    pub fn one_clock(&self, other: &Hello) -> bool {
        !self.boot_id.is_empty() && self.boot_id == other.boot_id
    }

    fn boot(&self) -> &str {
        self.boot_id.split('/').next().unwrap_or_default()
    }
}
