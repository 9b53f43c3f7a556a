//! The first frames of both sides: what they are, and their versions.

use serde::{Deserialize, Serialize};
use vtax_engine::Token;

/// The version of everything that is said over the control stream. Raise it with any change of it.
pub const PROTOCOL: u32 = 6;
/// The version of this program, as both sides must have it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `vtax-agent --version` prints, without the end of the line.
pub fn version_line() -> String {
    format!("vtax-agent {VERSION} (protocol {PROTOCOL})")
}

/// The sender's versions, which both first frames have. These fields stay in every version of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Greeting {
    pub protocol: u32,
    pub version: String,
}

impl Greeting {
    /// The versions of this program.
    pub fn ours() -> Greeting {
        Greeting { protocol: PROTOCOL, version: VERSION.to_owned() }
    }
}

/// The coordinator's first frame, in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    #[expect(missing_docs, reason = "the type says it")]
    #[serde(flatten)]
    pub greeting: Greeting,
    /// The agent repeats it beside its [`Hello`]; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

impl Opening {
    /// The opening of this program, with a key that nobody has had.
    pub fn ours() -> Opening {
        Opening { greeting: Greeting::ours(), key: Token::random().to_string() }
    }
}

/// The agent's first frame, in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    #[expect(missing_docs, reason = "the type says it")]
    #[serde(flatten)]
    pub hello: Hello,
    /// The key of the [`Opening`] that this answers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

/// A greeting, and which process on which machine the agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    #[expect(missing_docs, reason = "the type says it")]
    #[serde(flatten)]
    pub greeting: Greeting,
    /// The agent's process id in its own PID namespace.
    pub pid: u32,
    /// The name of the machine.
    pub hostname: String,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`, random(4)), and after a `/` the
    /// agent's time namespace if that isn't the first. Agents that agree in both read one monotonic
    /// clock (time_namespaces(7)). Empty if the kernel doesn't tell.
    pub boot_id: String,
}
