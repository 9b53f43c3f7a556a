//! The messages on the control stream.
//!
//! `PROTOCOL.md` describes the stream, the order of frames, and ports that carry one conversation after
//! another. A *session* is one end of one sample. The coordinator chooses its id, because it must be able to
//! cancel a session before the first answer comes. An initiator is first connected and then started by a
//! separate call, so that many can start at the same moment.
//!
//! Both sides must have the same protocol *and* the same program version, because figures from two versions
//! of a measuring tool can't be compared. The magic, the limit of the hello and the fields of [`Greeting`]
//! are the same in every version, so that each side can name the other's version.

mod greeting;

use std::{fmt::Display, net::IpAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use miette::Diagnostic;
use serde::{Deserialize, Serialize};
use vtax_host::pin::Machine;
use vtax_model::{
    endpoint::DeviceName,
    foreign::ForeignText,
    measurement::{EchoWatch, EndReport},
    run::{Environment, Hop, ProcessLimits},
    station::{EndSetup, Schedule, Target},
    units::{ByteSize, Mtu, Span},
    workload::TestSpec,
};
use vtax_sys::token::Token;
use vtax_tune::{TuningOrder, TuningReply};

pub use greeting::{Greeting, Hello, Introduction, Opening, PROTOCOL, VERSION, version_line};

/// The id of a call. The answer to the call has the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId(pub u64);

/// The id of a session: one end of one sample, on one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// A frame to the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    /// An id that no unanswered call uses.
    pub id: CallId,
    /// The operation, with its parameters.
    pub request: Request,
}

/// The orders that an agent accepts. A `session` is new on this agent, unless stated that it belongs to another call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Bind the responder of a new session and let it serve. The initiator will show `token`. Answer:
    /// [`Reply::Listening`].
    Listen {
        session: SessionId,
        spec: TestSpec,
        setup: EndSetup,
        #[serde(with = "token_on_wire")]
        token: Token,
    },
    /// Create the file that file tests from `directory` send, and keep it until another one is created. This takes
    /// longer than sending it, and a responder doesn't wait that long. It is a session until the file exists. Answer:
    /// [`Reply::Done`].
    Prepare { session: SessionId, directory: PathBuf, size: ByteSize },
    /// Answer when the responder of a [`Request::Listen`]'s session is done. Answer: [`Reply::Report`].
    Finish { session: SessionId },
    /// Connect the initiator of a new session to a responder at `target`, the address as this agent reaches
    /// it. The initiator doesn't send anything of the test yet. Answer: [`Reply::Connected`].
    Connect {
        session: SessionId,
        spec: TestSpec,
        setup: EndSetup,
        target: Target,
        #[serde(with = "token_on_wire")]
        token: Token,
    },
    /// Run the connected initiator of a [`Request::Connect`]'s session to its end. It starts at a moment of the agent's
    /// monotonic clock, or immediately if that has passed. Answer: [`Reply::Report`].
    Start {
        session: SessionId,
        #[serde(default)]
        schedule: Schedule,
    },
    /// Watch an address in a new session until the session is cancelled, which is not a failure, or until its time is
    /// over. Answer: [`Reply::Report`].
    Watch { session: SessionId, watch: EchoWatch },
    /// Cancel a session. The call that waits for it is answered with [`FaultKind::Cancelled`]. A session that doesn't
    /// exist is not a fault: it may just have ended. Answer: [`Reply::Done`].
    Cancel { session: SessionId },
    /// [`Request::Cancel`] for every session. Answer: [`Reply::Done`].
    CancelAll,
    /// Show that the agent is alive. Answer: [`Reply::Done`].
    Ping,
    /// Read the agent's monotonic clock. Answer: [`Reply::Clock`].
    Clock,
    /// Read the CPU time of all programs on the agent's machine except the agent, the processes `ours` (the other agents there),
    /// and their descendants. Answer: [`Reply::OtherPrograms`].
    OtherPrograms { ours: Vec<u32> },
    /// Describe where the agent runs. Answer: [`Reply::Facts`].
    Describe,
    /// Describe the link through which packets to an address leave, with any source address or a given one. Answer:
    /// [`Reply::Route`].
    Route {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<IpAddr>,
        to: IpAddr,
        /// The device to which the sender's sockets are bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<DeviceName>,
    },
    /// Read or change settings of the agent's machine. Orders are executed one after another, while sessions continue.
    /// Answer: [`Reply::Tuned`].
    Tune(TuningOrder),
    /// Set up a link of the agent's guest. If it is set up again with another MTU or more addresses, only
    /// these change. It is a session until the link has a carrier. Answer: [`Reply::Link`].
    Attach { session: SessionId, attachment: LinkSetup },
    /// Temporarily assign an address to a link of the agent's guest, until [`Request::TakeBack`] or the end of the
    /// conversation. It is a session until the link has a carrier. Answer: [`Reply::Link`].
    Lend { session: SessionId, loan: AddressLoan },
    /// Remove all temporarily assigned addresses. Answer: [`Reply::Done`].
    TakeBack,
    /// Dirty memory of the agent's guest at a rate, until another load is set, even after this conversation. Answer:
    /// [`Reply::Done`], once the memory is in use.
    Load(MemoryLoad),
    /// Run a program in the agent's guest, in its own process group. It is a session until the program has
    /// ended. Answer: [`Reply::Ran`], and before that [`CallOutcome::Output`]s if there is a window.
    Run(ProgramSpec),
    /// The coordinator has consumed this many bytes of output of a [`Request::Run`] with a window, so the agent may
    /// send as many more. A session that doesn't exist is not a fault: it may just have ended. Answer: [`Reply::Done`].
    More { session: SessionId, taken: ByteSize },
    /// Send a signal to the process group of a [`Request::Run`]'s program. A session that doesn't exist is not a fault:
    /// it may just have ended. Answer: [`Reply::Done`].
    Signal { session: SessionId, signal: Signal },
    /// [`Request::CancelAll`], then end the conversation. An agent on a port stays for the next coordinator;
    /// others exit. Answer: [`Reply::Done`].
    Shutdown,
    /// [`Request::CancelAll`], then power the machine off. Only an agent that is the machine's first process does that.
    /// Answer: [`Reply::Done`].
    PowerOff,
}

/// A program for an agent to run in its guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramSpec {
    /// A session id that is new on this agent.
    pub session: SessionId,
    /// The program, as a path or a name to be found in PATH, and its arguments.
    pub argv: Vec<String>,
    /// The bytes on its standard input, at most [`INPUT_MOST`](crate::limits::INPUT_MOST); base64 on the wire.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "base64_on_wire")]
    pub stdin: Vec<u8>,
    /// Time limit. After that, its process group is killed.
    #[serde(default = "run_limit")]
    pub limit: Span,
    /// Bytes of its outputs that may be in flight, at most [`WINDOW_MOST`](crate::limits::WINDOW_MOST). The agent
    /// streams the outputs, and reads no more from the program until it gets a [`Request::More`]. Without a window, the
    /// outputs come with the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<ByteSize>,
}

/// A link of a guest, and how to set it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSetup {
    /// Its hardware address, written `02:00:5e:10:00:01`.
    pub mac: String,
    /// MTU to set, unless the link has it already.
    pub mtu: Mtu,
    /// The addresses to add. IPv6 is off if none of them is an IPv6 address.
    pub addresses: Vec<IpNet>,
}

/// An address for a link of a guest. A link that is down is up for as long as it has the address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressLoan {
    /// The link's hardware address, written `02:00:5e:10:00:01`.
    pub mac: String,
    /// Address to add, with its prefix length, e.g. `198.18.0.1/30`.
    pub address: IpNet,
}

/// Memory of a guest to be in use and dirtied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryLoad {
    /// Memory in use.
    pub region: ByteSize,
    /// Bytes per second dirtied, page by page, from the beginning of the region over and over.
    pub per_second: ByteSize,
}

/// Default time limit of a program run by [`Request::Run`].
pub const RUN_LIMIT: Span = Span(Duration::from_secs(60));

fn run_limit() -> Span {
    RUN_LIMIT
}

/// A signal for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    Int,
    Term,
    Kill,
}

/// A frame from the agent: the answer to the call with this id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub id: CallId,
    pub outcome: CallOutcome,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallOutcome {
    /// The agent did what it was asked.
    Done(Reply),
    /// The agent didn't do what it was asked.
    Failed(Fault),
    /// Output of a program; the call's answer comes later.
    Output(ProgramOutput),
}

/// A piece of a program's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramOutput {
    pub stream: Stream,
    #[serde(with = "base64_on_wire")]
    pub bytes: Vec<u8>,
}

/// The outputs of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// The result of a call that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// Nothing more to report.
    Done,
    /// The responder is bound and serves.
    Listening {
        target: Target,
    },
    /// The initiator is connected and waits for [`Request::Start`].
    Connected,
    Report(Box<EndReport>),
    /// The agent's monotonic clock when the answer was created.
    Clock {
        now_ns: u64,
    },
    /// CPUs online, and CPU time of other programs since they started.
    OtherPrograms {
        cpus: u32,
        cpu_ns: u64,
    },
    /// The agent's environment.
    Facts(Box<AgentFacts>),
    /// The link through which packets to that address leave, if any.
    Route(Vec<Hop>),
    /// The link is up and has a carrier.
    Link(Attached),
    /// The program has ended.
    Ran(Ran),
    /// The settings read or changed.
    Tuned(Box<TuningReply>),
}

/// A link of a guest that was set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its name in the guest.
    pub name: ForeignText,
    /// Its driver, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<ForeignText>,
}

/// A program that was run in a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Its exit status, or 128 plus the number of the signal that killed it.
    pub status: i32,
    /// The first [`OUTPUT_MOST`](crate::limits::OUTPUT_MOST) of its standard output; U+FFFD replaces bytes that are not
    /// UTF-8. Empty if it was streamed.
    pub stdout: ForeignText,
    /// The same for standard error.
    pub stderr: ForeignText,
}

/// The failure of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    pub kind: FaultKind,
    pub message: ForeignText,
    /// The code of the error (`docs/errors`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ForeignText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Box<EndReport>>,
}

impl Fault {
    /// A fault without a report.
    pub fn new(kind: FaultKind, code: &str, message: String) -> Fault {
        Fault { kind, message: message.into(), code: Some(code.into()), partial: None }
    }

    /// A fault with the error's message and code. The code of a cancelled session also determines the kind.
    pub fn of(kind: FaultKind, error: &impl Diagnostic) -> Fault {
        let code = error.code().map(|code| code.to_string());
        let kind = if code.as_deref() == Some("cancelled") { FaultKind::Cancelled } else { kind };
        Fault { kind, message: error.to_string().into(), code: code.map(ForeignText::from), partial: None }
    }

    /// Returns true if it has this error code (`docs/errors`).
    pub fn has_code(&self, code: &str) -> bool {
        self.code.as_ref().is_some_and(|own| own.raw() == code)
    }
}

impl Diagnostic for Fault {
    fn code(&self) -> Option<Box<dyn Display + '_>> {
        self.code.as_ref().map(|code| Box::new(code) as Box<dyn Display>)
    }
}

/// Kind of a [`Fault`], in kebab case on the wire, e.g. `bad-request`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A frame that isn't a request of this protocol.
    BadRequest,
    /// An order beyond the agent's limits (see [`limits`](crate::limits)).
    Refused,
    /// A session id that is in use or unknown, or whose outcome another call already waits for.
    Session,
    /// The session was cancelled.
    Cancelled,
    /// The test itself failed.
    Engine,
    /// The agent's machine didn't do what it was asked.
    System,
    /// The program to run doesn't exist on the agent's machine (ENOENT).
    NotFound,
    /// A defect of the agent: the session panicked. Other sessions continue.
    Panicked,
}

/// Facts about an agent's environment that affect the figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentFacts {
    /// The machine, as a result describes it.
    pub environment: Environment,
    /// The kernel's build, as `uname -v` prints it.
    pub kernel_build: ForeignText,
    /// The instruction set that the agent was built for.
    pub architecture: ForeignText,
    /// As in [`Hello`].
    pub boot_id: String,
    /// The CPUs on which the agent may run.
    pub cpus_allowed: Vec<u32>,
    /// The IP addresses of its network namespace.
    pub addresses: Vec<LinkAddress>,
    /// The address to which the ssh client connected, if ssh started the agent. The client reaches this host at this
    /// address, unless the connection was forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_address: Option<IpAddr>,
    /// CPUs, nodes and interrupts, for a pin plan.
    pub machine: Machine,
    /// Restrictions of the agent's process, e.g. by the cgroup of its container.
    #[serde(default, skip_serializing_if = "is_unlimited")]
    pub limits: ProcessLimits,
}

fn is_unlimited(limits: &ProcessLimits) -> bool {
    *limits == ProcessLimits::default()
}

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkAddress {
    pub link: ForeignText,
    /// The hardware address of the interface, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<ForeignText>,
    pub address: IpAddr,
    pub prefix: u8,
    /// True if the interface is up and has a carrier.
    pub running: bool,
}

/// Bytes as text (RFC 4648, 4).
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
    use vtax_sys::token::Token;

    pub(super) fn serialize<S: Serializer>(token: &Token, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(token)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
