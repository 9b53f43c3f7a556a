//! One sample: a responder on one agent, an initiator on another (or on the same).

use std::{
    net::{IpAddr, SocketAddr},
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use vtax_engine::{EndSetup, Token};
use vtax_model::{
    measurement::EndReport,
    units::ByteSize,
    workload::{TestSpec, Workload},
};

use crate::{
    link::{AgentError, AgentLink, Arrival},
    protocol::{Request, SessionId},
};

/// How long an agent may take for what needs no measuring.
const CONTROL: Duration = Duration::from_secs(10);
/// What a test may take beyond its time: connecting, the last responses, and a busy machine.
const MARGIN: Duration = Duration::from_secs(20);
/// How long the other end has to give up, once one has failed.
const GIVE_UP: Duration = Duration::from_secs(3);
/// The slowest path that a file is waited for on, in bytes a second: 8 Mb/s. The file is also
/// written before and read after.
const FILE_PACE: u64 = 1_000_000;

/// A sample to be taken.
#[derive(Debug, Clone)]
pub struct Order {
    /// The test.
    pub spec: TestSpec,
    /// Where the initiator stands.
    pub initiator: EndSetup,
    /// Where the responder stands.
    pub responder: EndSetup,
    /// The address at which the initiator reaches the responder. The port is the responder's
    /// choice.
    pub target: IpAddr,
}

/// One of the two ends of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Who connects, asks, or sends.
    Initiator,
    /// Who is connected to, answers, or receives.
    Responder,
}

/// A sample that was not taken.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// An end failed. The other was cancelled; if it had troubles of its own, they are told too.
    #[error("{error}{}", other.as_ref().map(|other| format!("; and {other}")).unwrap_or_default())]
    End {
        /// Which.
        end: End,
        /// Why.
        #[source]
        error: AgentError,
        /// What went wrong at the other end that isn't explained by the cancel.
        other: Option<Box<AgentError>>,
    },
    /// What has arrived isn't what was sent.
    #[error(
        "the file that arrived at {responder} has the checksum {received:016x}, the one that {initiator} sent has {sent:016x}: the path, or a disk, has changed it"
    )]
    Checksum {
        /// The initiator's agent.
        initiator: String,
        /// The responder's agent.
        responder: String,
        /// XXH3-64 at the initiator.
        sent: u64,
        /// XXH3-64 at the responder.
        received: u64,
    },
    /// A report of a file transfer without the file's part: a defect of the agent.
    #[error(
        "the agent of {agent} reports nothing of the file that it was to transfer; this is a defect of vtax, please report it"
    )]
    NoFile {
        /// The agent.
        agent: String,
    },
}

impl MeasureError {
    /// Whether nothing failed but the sample was cancelled, as by Ctrl-C. If the two ends are
    /// cancelled one after the other, the second may have missed the first by then, and says so
    /// instead: who cancels should remember that it did.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, MeasureError::End { error, other: None, .. } if error.is_cancelled())
    }

    /// Whether an agent was lost: no more samples can be taken with it.
    pub fn is_death(&self) -> bool {
        let dead = |error: &AgentError| error.is_death();
        matches!(self, MeasureError::End { error, other, .. } if dead(error) || other.as_deref().is_some_and(dead))
    }
}

/// Takes a sample: the reports of the initiator and of the responder.
///
/// It returns when both ends are done, or as soon as one has failed and the other has been
/// told. To end it early from another thread, cancel on either link (`cancel_all`).
pub fn measure(
    initiator: &AgentLink,
    responder: &AgentLink,
    order: &Order,
) -> Result<(EndReport, EndReport), MeasureError> {
    let token = Token::random();
    let spec = order.spec;
    let sample = Sample {
        parties: [
            Party { end: End::Initiator, link: initiator, session: initiator.new_session(), verb: "initiate" },
            Party { end: End::Responder, link: responder, session: responder.new_session(), verb: "finish" },
        ],
        deadline: deadline(&spec),
    };
    prepare(initiator, order)?;
    let [initiates, responds] = sample.parties.each_ref().map(|party| party.session);
    let port = listen(responder, responds, order, token)?;
    let target = SocketAddr::new(order.target, port);
    let initiate = Request::Initiate { session: initiates, spec, setup: order.initiator.clone(), target, token };
    let [sent, received] = sample.run([initiate, Request::Finish { session: responds }])?;
    check_file(&spec, [(initiator, &sent), (responder, &received)])?;
    Ok((sent, received))
}

/// A file is made before anyone waits for it, and once for all samples that send it.
fn prepare(initiator: &AgentLink, order: &Order) -> Result<(), MeasureError> {
    let (Workload::File { size }, Some(directory)) = (order.spec.workload, order.initiator.directory.clone()) else {
        return Ok(());
    };
    let session = initiator.new_session();
    let pending = initiator.call(Request::Prepare { session, directory, size });
    let made = pending.and_then(|pending| pending.wait(CONTROL + file_time(size)));
    match made {
        Ok(_) => Ok(()),
        Err(error) => Err(abandon(initiator, session, End::Initiator, error)),
    }
}

fn listen(responder: &AgentLink, session: SessionId, order: &Order, token: Token) -> Result<u16, MeasureError> {
    let listening = responder.listen(session, &order.spec, &order.responder, token, CONTROL);
    listening.map_err(|error| abandon(responder, session, End::Responder, error))
}

/// The answer may only be late: nothing is to go on. An agent that is gone needs no cancel.
fn abandon(link: &AgentLink, session: SessionId, end: End, error: AgentError) -> MeasureError {
    let _ = link.cancel(session);
    MeasureError::End { end, error, other: None }
}

/// How long a test may take until it is given up.
pub fn deadline(spec: &TestSpec) -> Duration {
    let transfer = match spec.workload {
        Workload::File { size } => file_time(size).saturating_mul(spec.streams.max(1)),
        Workload::Rr { .. } | Workload::Stream { .. } => spec.duration.0,
    };
    transfer.saturating_add(spec.warmup.0).saturating_add(MARGIN)
}

fn file_time(size: ByteSize) -> Duration {
    Duration::from_secs(size.0 / FILE_PACE)
}

/// One end of the sample that is being taken.
struct Party<'link> {
    end: End,
    link: &'link AgentLink,
    session: SessionId,
    verb: &'static str,
}

/// Both ends, initiator first; their positions are the tags of their answers.
struct Sample<'link> {
    parties: [Party<'link>; 2],
    deadline: Duration,
}

type Outcomes = [Option<Result<EndReport, AgentError>>; 2];

impl Sample<'_> {
    /// Both requests at once, one channel for both answers: whichever fails first is known
    /// when it fails.
    fn run(&self, requests: [Request; 2]) -> Result<[EndReport; 2], MeasureError> {
        let (answer_to, arrivals) = mpsc::channel();
        let mut outcomes = [None, None];
        for (tag, request) in requests.into_iter().enumerate() {
            if let Err(error) = self.parties[tag].link.send(request, answer_to.clone(), tag) {
                outcomes[tag] = Some(Err(error));
            }
        }
        self.collect(&mut outcomes, &arrivals, self.deadline, |outcomes| undecided(outcomes) && !failed(outcomes));
        let waited = if failed(&outcomes) { None } else { Some(self.deadline) };
        if failed(&outcomes) || undecided(&outcomes) {
            self.cancel();
            self.collect(&mut outcomes, &arrivals, GIVE_UP, undecided);
        }
        self.verdict(outcomes, waited)
    }

    /// Takes answers while `more` are wanted, but not for longer than `most`.
    fn collect(
        &self,
        outcomes: &mut Outcomes,
        arrivals: &Receiver<Arrival>,
        most: Duration,
        more: impl Fn(&Outcomes) -> bool,
    ) {
        let deadline = Instant::now() + most;
        while more(outcomes) {
            let Ok(arrival) = arrivals.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
                return;
            };
            let (tag, party) = (arrival.tag, &self.parties[arrival.tag]);
            let reply = party.link.open(party.verb, arrival);
            outcomes[tag] = Some(reply.and_then(|reply| party.link.report(party.verb, reply)));
        }
    }

    /// No answer is waited for, and an agent that is gone needs none.
    fn cancel(&self) {
        for party in &self.parties {
            let _ = party.link.cancel(party.session);
        }
    }

    /// `waited`: how long, if it was the time that was up and not an end that failed.
    fn verdict(&self, outcomes: Outcomes, waited: Option<Duration>) -> Result<[EndReport; 2], MeasureError> {
        let [initiator, responder] = &self.parties;
        let [sent, received] = outcomes;
        match (initiator.result(sent, waited), responder.result(received, waited)) {
            (Ok(sent), Ok(received)) => Ok([sent, received]),
            (Err(error), Ok(_)) => Err(initiator.blame(error, None)),
            (Ok(_), Err(error)) => Err(responder.blame(error, None)),
            (Err(first), Err(second)) if weight(&second) > weight(&first) => Err(responder.blame(second, Some(first))),
            (Err(first), Err(second)) => Err(initiator.blame(first, Some(second))),
        }
    }
}

impl Party<'_> {
    fn result(
        &self,
        outcome: Option<Result<EndReport, AgentError>>,
        waited: Option<Duration>,
    ) -> Result<EndReport, AgentError> {
        match (outcome, waited) {
            (Some(Err(error)), Some(waited)) if error.is_cancelled() => Err(self.link.late(self.verb, waited)),
            (Some(outcome), _) => outcome,
            (None, waited) => Err(self.link.late(self.verb, waited.unwrap_or(GIVE_UP))),
        }
    }

    fn blame(&self, error: AgentError, other: Option<AgentError>) -> MeasureError {
        let other = other.filter(|other| !other.is_cancelled()).map(Box::new);
        MeasureError::End { end: self.end, error, other }
    }
}

fn undecided(outcomes: &Outcomes) -> bool {
    outcomes.iter().any(Option::is_none)
}

fn failed(outcomes: &Outcomes) -> bool {
    outcomes.iter().any(|outcome| matches!(outcome, Some(Err(_))))
}

/// Which of two errors is rather the cause: an end whose peer has died complains too, and one
/// that was cancelled only does as told.
fn weight(error: &AgentError) -> u8 {
    match error {
        error if error.is_cancelled() => 0,
        AgentError::Deadline { .. } => 1,
        error if error.is_death() => 3,
        _ => 2,
    }
}

fn check_file(spec: &TestSpec, ends: [(&AgentLink, &EndReport); 2]) -> Result<(), MeasureError> {
    if !matches!(spec.workload, Workload::File { .. }) {
        return Ok(());
    }
    let [(initiator, sent), (responder, received)] = ends;
    let (sent, received) = (checksum(initiator, sent)?, checksum(responder, received)?);
    if sent == received {
        return Ok(());
    }
    let (initiator, responder) = (initiator.name().to_owned(), responder.name().to_owned());
    Err(MeasureError::Checksum { initiator, responder, sent, received })
}

fn checksum(link: &AgentLink, report: &EndReport) -> Result<u64, MeasureError> {
    let file = report.file.ok_or_else(|| MeasureError::NoFile { agent: link.name().to_owned() })?;
    Ok(file.checksum)
}

#[cfg(test)]
mod tests;
