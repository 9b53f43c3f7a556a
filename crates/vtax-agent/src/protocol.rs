//! What is said over the control stream.
//!
//! `PROTOCOL.md` describes the stream, the order of frames, and ports that carry one conversation after
//! another. A *session* is one end of one sample; the coordinator chooses its id, because it has to be able
//! to cancel a session whose first answer hasn't come. An initiator is connected first and started by a call
//! of its own, so that many can start at one moment.
//!
//! Both sides must have the same protocol *and* the same program version: figures of two versions of a
//! measuring tool are not to be compared. The magic, the limit of the hello and the fields of [`Greeting`]
//! are the same in every version, so that each side can name the other's version.

mod greeting;

use std::{fmt::Display, net::IpAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use miette::Diagnostic;
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

/// What an agent can be told to do. A `session` is new on this agent unless it is said to be one of another call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the requests' own documentation says it")]
pub enum Request {
    /// Bind the responder of a new session and let it serve; the initiator will show `token`.
    /// [`Reply::Listening`].
    Listen {
        session: SessionId,
        spec: TestSpec,
        setup: EndSetup,
        #[serde(with = "token_on_wire")]
        token: Token,
    },
    /// Make the file that file tests from `directory` send, and keep it for them until another
    /// is made: making it takes longer than sending it, and a responder doesn't wait for that.
    /// A session until it is made. [`Reply::Done`].
    Prepare { session: SessionId, directory: PathBuf, size: ByteSize },
    /// Answer when the responder of this session of a [`Request::Listen`] is done. [`Reply::Report`].
    Finish { session: SessionId },
    /// Connect the initiator of a new session to a responder, whose `target` is as it is reached from
    /// here. The initiator sends nothing of the test yet. [`Reply::Connected`].
    Connect {
        session: SessionId,
        spec: TestSpec,
        setup: EndSetup,
        target: Target,
        #[serde(with = "token_on_wire")]
        token: Token,
    },
    /// Run the connected initiator of this session of a [`Request::Connect`] to its end, by the
    /// agent's monotonic clock; at once if that moment is past. [`Reply::Report`].
    Start {
        session: SessionId,
        #[serde(default)]
        schedule: Schedule,
    },
    /// End a session early; what waits for it is answered with [`FaultKind::Cancelled`].
    /// No fault if there is no such session: it may just have ended. [`Reply::Done`].
    Cancel { session: SessionId },
    /// [`Request::Cancel`] for every session. [`Reply::Done`].
    CancelAll,
    /// Prove that the agent lives. [`Reply::Done`].
    Ping,
    /// Read the agent's monotonic clock. [`Reply::Clock`].
    Clock,
    /// Say where the agent runs. [`Reply::Facts`].
    Describe,
    /// Describe the link that carries packets to an address, from any address or a certain one.
    /// [`Reply::Route`].
    Route {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<IpAddr>,
        to: IpAddr,
    },
    /// Set up a link of the guest that the agent is in: again with another MTU or further
    /// addresses, only these change. A session until the link has a carrier. [`Reply::Link`].
    Attach { session: SessionId, attachment: LinkSetup },
    /// Run a program in the guest that the agent is in, in a process group of its own. A session
    /// until it has ended. [`Reply::Ran`], and with a window [`CallOutcome::Output`]s before it.
    Run(ProgramSpec),
    /// So many bytes of both outputs of a [`Request::Run`] with a window have been taken: as many may
    /// follow. No fault if there is no such session: it may just have ended. [`Reply::Done`].
    More { session: SessionId, taken: ByteSize },
    /// Send a signal to the process group of a [`Request::Run`]'s program. No fault if there is no such
    /// session: it may just have ended. [`Reply::Done`].
    Signal { session: SessionId, signal: Signal },
    /// [`Request::CancelAll`], then end the conversation: an agent on a port stays for the next
    /// coordinator, others exit. [`Reply::Done`].
    Shutdown,
    /// [`Request::CancelAll`], then switch the machine off, which only an agent does that is its
    /// first process. [`Reply::Done`].
    PowerOff,
}

/// A program to be run in a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramSpec {
    /// New on this agent.
    pub session: SessionId,
    /// The program, as a path or to be looked up in PATH, and its arguments.
    pub argv: Vec<String>,
    /// What it finds on its standard input, at most [`INPUT_MOST`](crate::limits::INPUT_MOST);
    /// in base64 on the wire.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "base64_on_wire")]
    pub stdin: Vec<u8>,
    /// How long it may take; past it the group is killed.
    #[serde(default = "run_limit")]
    pub limit: Span,
    /// How many bytes of its outputs may be on the way, at most [`WINDOW_MOST`](crate::limits::WINDOW_MOST):
    /// they are sent as they come, and the agent takes no more from the program until it gets a
    /// [`Request::More`]. Without a window the outputs come with the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<ByteSize>,
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
#[expect(missing_docs, reason = "these are the kernel's names")]
pub enum Signal {
    Int,
    Term,
    Kill,
}

/// A frame from the agent: the answer to the call of this id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the types say it")]
pub struct Answer {
    pub id: CallId,
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
#[expect(missing_docs, reason = "the types say it")]
pub struct ProgramOutput {
    pub stream: Stream,
    #[serde(with = "base64_on_wire")]
    pub bytes: Vec<u8>,
}

/// The outputs of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "these are the usual names")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// The result of a call that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// Nothing more to say.
    Done,
    /// The responder is bound and serves.
    #[expect(missing_docs, reason = "the type says it")]
    Listening { target: Target },
    /// The initiator is connected and waits for [`Request::Start`].
    Connected,
    /// What this end has seen.
    Report(Box<EndReport>),
    /// The agent's monotonic clock when the answer was made.
    #[expect(missing_docs, reason = "the name says it")]
    Clock { now_ns: u64 },
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
    /// The code of the error (`docs/errors`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Box<EndReport>>,
}

impl Fault {
    /// Without a report.
    pub fn new(kind: FaultKind, code: &str, message: String) -> Fault {
        Fault { kind, message, code: Some(code.to_owned()), partial: None }
    }

    /// What the error says, and its code. The code of a session that was cancelled tells the kind, too.
    pub fn of(kind: FaultKind, error: &impl Diagnostic) -> Fault {
        let code = error.code().map(|code| code.to_string());
        let kind = if code.as_deref() == Some("cancelled") { FaultKind::Cancelled } else { kind };
        Fault { kind, message: error.to_string(), code, partial: None }
    }
}

impl Diagnostic for Fault {
    fn code(&self) -> Option<Box<dyn Display + '_>> {
        self.code.as_ref().map(|code| Box::new(code) as Box<dyn Display>)
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
#[expect(missing_docs, reason = "the names say it")]
pub struct LinkAddress {
    pub link: String,
    pub address: IpAddr,
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
        serializer.collect_str(token)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
