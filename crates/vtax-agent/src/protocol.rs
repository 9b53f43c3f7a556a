//! What is said over the control stream.
//!
//! Any duplex byte stream will do: the standard input and output of a child process or of
//! `ssh`, a virtio-serial port. The coordinator speaks first, because a serial port throws
//! away what is said into it before anyone listens.
//!
//! ```text
//! coordinator                              agent
//!   MAGIC, frame: Opening           -->
//!                                   <--      MAGIC, frame: Hello
//!   frame: Call { id: 1, request }  -->
//!   frame: Call { id: 2, request }  -->
//!                                   <--      frame: Answer { id: 2, outcome }
//!                                   <--      frame: Answer { id: 1, outcome }
//!   end of stream                   -->      (everything is cancelled, the agent exits)
//! ```
//!
//! Answers come when they are ready, in any order, and one for each call; before the answer to a
//! [`Request::Run`] there may be its [`CallOutcome::Output`]s. A *session* is one end of one sample; its
//! id is chosen by the coordinator, as it has to be able to cancel a session whose first
//! answer hasn't come. An initiator's session is connected first and started by a call of its
//! own, so that many can start at one moment.
//!
//! On a port, which has no connections of its own, the magic of the next coordinator ends the
//! conversation of the one before (see [`conversations`](crate::conversations)), and the agent stays
//! for both. Each coordinator knows the hello that is meant for it by the key of its [`Opening`].
//!
//! Both sides must be of the same protocol *and* of the same program version: figures of two
//! versions of a measuring tool are not to be compared. The magic, the limit of the hello and
//! the fields of [`Greeting`] are the same in every version, so that each can name the other.

mod greeting;

use std::{net::IpAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use vtax_engine::{EndSetup, Schedule, Target, Token};
use vtax_host::pin::Machine;
use vtax_model::{
    measurement::EndReport,
    run::{Environment, Hop},
    units::{ByteSize, Mtu, Span},
    workload::TestSpec,
};

pub use greeting::{Greeting, Hello, Introduction, Opening, PROTOCOL, VERSION, version_line};

/// A call, for the one answer that carries its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId(pub u64);

/// One end of one sample, on one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// A frame to the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    /// Not in use by a call that is still unanswered.
    pub id: CallId,
    /// What to do.
    pub request: Request,
}

/// What an agent can be told to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Bind the responder of a new session and let it serve. [`Reply::Listening`].
    Listen {
        /// New on this agent.
        session: SessionId,
        /// The test.
        spec: TestSpec,
        /// Where this end stands.
        setup: EndSetup,
        /// What the initiator will show.
        #[serde(with = "token_on_wire")]
        token: Token,
    },
    /// Make the file that file tests from `directory` send, and keep it for them until another
    /// is made: making it takes longer than sending it, and a responder doesn't wait for that.
    /// A session until it is made. [`Reply::Done`].
    Prepare {
        /// New on this agent.
        session: SessionId,
        /// On the disk that is to be read.
        directory: PathBuf,
        /// The file's.
        size: ByteSize,
    },
    /// Answer when the responder of this session is done. [`Reply::Report`].
    Finish {
        /// The session of a [`Request::Listen`].
        session: SessionId,
    },
    /// Connect the initiator of a new session; it sends nothing of the test yet.
    /// [`Reply::Connected`].
    Connect {
        /// New on this agent.
        session: SessionId,
        /// The test, as the responder has it.
        spec: TestSpec,
        /// Where this end stands.
        setup: EndSetup,
        /// The responder, as it is reached from here.
        target: Target,
        /// What the responder expects.
        #[serde(with = "token_on_wire")]
        token: Token,
    },
    /// Run a connected initiator to its end. [`Reply::Report`].
    Start {
        /// The session of a [`Request::Connect`] that has been answered.
        session: SessionId,
        /// When, by the agent's monotonic clock; at once if that is past.
        #[serde(default)]
        schedule: Schedule,
    },
    /// End a session early; what waits for it is answered with [`FaultKind::Cancelled`].
    /// No fault if there is no such session: it may just have ended. [`Reply::Done`].
    Cancel {
        /// Which.
        session: SessionId,
    },
    /// [`Request::Cancel`] for every session. [`Reply::Done`].
    CancelAll,
    /// Prove that the agent lives. [`Reply::Done`].
    Ping,
    /// Read the agent's monotonic clock. [`Reply::Clock`].
    Clock,
    /// Say where the agent runs. [`Reply::Facts`].
    Describe,
    /// Describe the link that carries packets to an address. [`Reply::Route`].
    Route {
        /// Their source address, if it is to be a certain one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<IpAddr>,
        /// Their destination.
        to: IpAddr,
    },
    /// Set up a link of the guest that the agent is in: again with another MTU or further
    /// addresses, only these change. A session until the link has a carrier. [`Reply::Link`].
    Attach {
        /// New on this agent.
        session: SessionId,
        /// Which link, and how.
        attachment: LinkSetup,
    },
    /// Run a program in the guest that the agent is in, in a process group of its own. A session
    /// until it has ended. [`Reply::Ran`], and with a window [`CallOutcome::Output`]s before it.
    Run {
        /// New on this agent.
        session: SessionId,
        /// The program, as a path or to be looked up in PATH, and its arguments.
        argv: Vec<String>,
        /// What it finds on its standard input, at most [`INPUT_MOST`](crate::limits::INPUT_MOST);
        /// in base64 on the wire.
        #[serde(default, skip_serializing_if = "Vec::is_empty", with = "base64_on_wire")]
        stdin: Vec<u8>,
        /// How long it may take; past it the group is killed.
        #[serde(default = "run_limit")]
        limit: Span,
        /// How much of its outputs may be on the way: they are sent as they come, and when so much
        /// is without a [`Request::More`] no further is taken from the program, which then waits.
        /// At most [`WINDOW_MOST`](crate::limits::WINDOW_MOST). Without a window the outputs come
        /// with the reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<ByteSize>,
    },
    /// So much of the outputs has been taken: as much may follow. No fault if there is no such
    /// session: it may just have ended. [`Reply::Done`].
    More {
        /// The session of a [`Request::Run`] with a window.
        session: SessionId,
        /// Bytes of both outputs together.
        taken: ByteSize,
    },
    /// Send a signal to the process group of a program. No fault if there is no such session: it
    /// may just have ended. [`Reply::Done`].
    Signal {
        /// The session of a [`Request::Run`].
        session: SessionId,
        /// Which.
        signal: Signal,
    },
    /// [`Request::CancelAll`], then end the conversation: an agent on a port stays for the next
    /// coordinator, others exit. [`Reply::Done`].
    Shutdown,
    /// [`Request::CancelAll`], then switch the machine off, which only an agent does that is its
    /// first process. [`Reply::Done`].
    PowerOff,
}

/// A link of a guest and what it is to be like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSetup {
    /// Its hardware address, written `02:00:5e:10:00:01`.
    pub mac: String,
    /// Its MTU.
    pub mtu: Mtu,
    /// The addresses that it gets beside those that it has; IPv6 is off without an IPv6 address.
    pub addresses: Vec<IpNet>,
}

/// What [`Request::Run`] allows unless it says otherwise.
pub const RUN_LIMIT: Span = Span(Duration::from_secs(60));

fn run_limit() -> Span {
    RUN_LIMIT
}

/// What a program can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// SIGINT, as Ctrl-C sends it.
    Int,
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

/// A frame from the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The call's.
    pub id: CallId,
    /// What came of it.
    pub outcome: CallOutcome,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallOutcome {
    /// As asked.
    Done(Reply),
    /// Not as asked.
    Failed(Fault),
    /// Not the end of it: what a program has just written. The call's answer is still to come.
    Output(ProgramOutput),
}

/// A piece of what a program writes, as it comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramOutput {
    /// Where it was written to.
    pub stream: Stream,
    /// As written; in base64 on the wire.
    #[serde(with = "base64_on_wire")]
    pub bytes: Vec<u8>,
}

/// The outputs of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// The result of a call that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// Nothing more to say.
    Done,
    /// The responder is bound and serves.
    Listening {
        /// Its own address, and the port or the name that it was given.
        target: Target,
    },
    /// The initiator is connected and waits for [`Request::Start`].
    Connected,
    /// What this end has seen.
    Report(Box<EndReport>),
    /// The agent's monotonic clock.
    Clock {
        /// In nanoseconds, when the answer was made.
        now_ns: u64,
    },
    /// Where the agent runs.
    Facts(Box<AgentFacts>),
    /// The link, if packets to that address leave by one.
    Route(Vec<Hop>),
    /// The link is up and has a carrier.
    Link(Attached),
    /// The program has ended.
    Ran(Ran),
}

/// A link of a guest that was set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its name in the guest.
    pub name: String,
    /// Its driver, if that has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// A program that was run in a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// What it exited with, or 128 and the number of the signal that killed it.
    pub status: i32,
    /// The first [`OUTPUT_MOST`](crate::limits::OUTPUT_MOST) of what it wrote to standard output,
    /// what is no UTF-8 replaced by U+FFFD. Empty if it was sent as it came.
    pub stdout: String,
    /// The same of standard error.
    pub stderr: String,
}

/// Why a call was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[expect(missing_docs, reason = "the messages say it")]
pub struct Fault {
    pub kind: FaultKind,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Box<EndReport>>,
}

impl Fault {
    /// Without a report.
    pub fn new(kind: FaultKind, why: impl ToString) -> Fault {
        Fault { kind, message: why.to_string(), partial: None }
    }
}

/// The kinds of [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A frame that is no request of this protocol.
    BadRequest,
    /// A test beyond what an agent takes on (see [`limits`](crate::limits)).
    Refused,
    /// A session id that is in use, unknown, or already waited for.
    Session,
    /// The session was cancelled.
    Cancelled,
    /// The test itself failed.
    Engine,
    /// The machine that the agent runs on didn't do what it was asked.
    System,
    /// The program that was to run doesn't exist on the agent's machine (ENOENT).
    NotFound,
    /// A defect of the agent: the session panicked. Other sessions go on.
    Panicked,
}

/// Where an agent runs: what of its environment bears upon the figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentFacts {
    /// The machine, as a result describes it.
    pub environment: Environment,
    /// The kernel's build, as `uname -v` prints it.
    pub kernel_build: String,
    /// The instruction set that the agent was built for.
    pub architecture: String,
    /// As in [`Hello`].
    pub boot_id: String,
    /// CPUs that the agent may run on.
    pub cpus_allowed: Vec<u32>,
    /// The IP addresses of its network namespace.
    pub addresses: Vec<LinkAddress>,
    /// The address that ssh's client came to, if the agent was started by ssh: what this host is
    /// reached at from there, unless the connection was forwarded on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_address: Option<IpAddr>,
    /// CPUs, nodes and interrupts, for a pin plan.
    pub machine: Machine,
}

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkAddress {
    /// The interface's name.
    pub link: String,
    /// The address.
    pub address: IpAddr,
    /// Length of its network's prefix.
    pub prefix: u8,
    /// Whether the interface is switched on and has a carrier.
    pub running: bool,
}

/// Any bytes as text (RFC 4648, 4).
mod base64_on_wire {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}

/// A token as 32 hexadecimal digits.
mod token_on_wire {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use vtax_engine::Token;

    pub(super) fn serialize<S: Serializer>(token: &Token, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&token.to_hex())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
