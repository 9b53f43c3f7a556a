//! The first frames of both sides: who they are, and their versions.

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;
use vtax_sys::token::Token;

/// The version of all messages on the control stream. Increment it with every change.
pub const PROTOCOL: u32 = 16;
/// The version of this program. Both sides must have the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The output of `vtax-agent --version`, without the newline.
pub fn version_line() -> String {
    format!("vtax-agent {VERSION} (protocol {PROTOCOL})")
}

/// The sender's versions, which are in the first frame of both sides. These fields stay in every version of
/// the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub protocol: u32,
    pub version: ForeignText,
}

impl Greeting {
    /// The versions of this program.
    pub fn ours() -> Greeting {
        Greeting { protocol: PROTOCOL, version: VERSION.into() }
    }
}

/// The coordinator's complete first frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    #[serde(flatten)]
    pub greeting: Greeting,
    /// The agent repeats this key alongside its [`Hello`]. It may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

impl Opening {
    /// The opening of this program, with a new key.
    pub fn ours() -> Opening {
        Opening { greeting: Greeting::ours(), key: Token::random().to_string() }
    }
}

/// The agent's complete first frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    #[serde(flatten)]
    pub hello: Hello,
    /// The key of the [`Opening`] that it answers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

/// The agent's greeting, process and machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    #[serde(flatten)]
    pub greeting: Greeting,
    /// The agent's process id in its own PID namespace.
    pub pid: u32,
    /// The name of the machine.
    pub hostname: ForeignText,
    /// The kernel's release.
    pub kernel: ForeignText,
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`, random(4)). If the agent's time namespace isn't the
    /// initial one, it follows after a `/`. Agents with the same value read the same monotonic clock
    /// (time_namespaces(7)). Empty if the kernel doesn't report the id.
    pub boot_id: String,
}
