//! One end of a sample, and its progress.

use std::{mem, sync::mpsc::Sender, time::Duration};

use vtax_model::{measurement::EndReport, station::Target};
use vtax_sys::token::Token;

use super::{Blame, End, SampleFailure};
use crate::{
    link::{AgentError, AgentLink, Incoming},
    protocol::{Reply, Request, SessionId},
};

/// One end of a sample.
pub(super) struct MeasuringAgent<'link> {
    pub(super) pair: usize,
    pub(super) end: End,
    pub(super) link: &'link AgentLink,
    pub(super) session: SessionId,
    pub(super) token: Token,
    state: State,
    /// The listening address of a responder.
    pub(super) target: Option<Target>,
    /// The endpoint's report when it failed.
    partial: Option<Box<EndReport>>,
}

/// The state of an endpoint. No endpoint has more than one open call.
enum State {
    /// No answer is expected.
    Idle,
    /// An answer is expected; errors use the call's name.
    Asked {
        verb: &'static str,
        for_what: Awaited,
    },
    /// It is done.
    Reported(Box<EndReport>),
    Failed(AgentError),
}

/// The kind of answer that a call expects.
#[derive(Clone, Copy)]
enum Awaited {
    Target,
    Connection,
    Report,
}

impl<'link> MeasuringAgent<'link> {
    pub(super) fn new(pair: usize, end: End, link: &'link AgentLink, token: Token) -> MeasuringAgent<'link> {
        let session = link.new_session();
        MeasuringAgent { pair, end, link, session, token, state: State::Idle, target: None, partial: None }
    }

    pub(super) fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked { .. })
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Sends a request. If this fails, the end has failed.
    pub(super) fn ask(&mut self, request: Request, answer_to: &Sender<Incoming>, tag: usize) {
        let for_what = match request {
            Request::Listen { .. } => Awaited::Target,
            Request::Connect { .. } => Awaited::Connection,
            _ => Awaited::Report,
        };
        self.state = match self.link.send(request, answer_to.clone(), tag) {
            Ok((_, verb)) => State::Asked { verb, for_what },
            Err(error) => State::Failed(error),
        };
    }

    /// Takes the answer to the last request.
    pub(super) fn take(&mut self, arrival: Incoming) {
        let State::Asked { verb, for_what } = mem::replace(&mut self.state, State::Idle) else {
            return;
        };
        self.state = match (self.link.open(verb, arrival), for_what) {
            (Ok(Reply::Listening { target }), Awaited::Target) => {
                self.target = Some(target);
                State::Idle
            }
            (Ok(Reply::Connected), Awaited::Connection) => State::Idle,
            (Ok(Reply::Report(report)), Awaited::Report) => State::Reported(report),
            (Ok(_), _) => State::Failed(self.link.odd(verb)),
            (Err(mut error), _) => {
                if let AgentError::Refused { fault, .. } = &mut error {
                    self.partial = fault.partial.take();
                }
                State::Failed(error)
            }
        };
    }

    /// The error of an end that hasn't answered so far.
    pub(super) fn late(&self, waited: Duration) -> Option<Blame> {
        match self.state {
            State::Asked { verb, .. } => Some((self.pair, self.end, self.link.late(verb, waited))),
            _ => None,
        }
    }

    /// This endpoint's report, complete or not.
    pub(super) fn seen(&self) -> Option<&EndReport> {
        match &self.state {
            State::Reported(report) => Some(report),
            _ => self.partial.as_deref(),
        }
    }

    pub(super) fn into_report(self) -> Option<EndReport> {
        match self.state {
            State::Reported(report) => Some(*report),
            _ => None,
        }
    }

    /// The error of this end, if the sample ends now. `waited` is the time limit if it has run out. Otherwise
    /// the ends had `give_up` since they were cancelled.
    pub(super) fn error(&mut self, waited: Option<Duration>, give_up: Duration) -> Option<AgentError> {
        match mem::replace(&mut self.state, State::Idle) {
            State::Failed(error) => match (&error, waited) {
                (AgentError::Refused { what, .. }, Some(waited)) if error.is_cancelled() => {
                    Some(self.link.late(what, waited))
                }
                _ => Some(error),
            },
            State::Asked { verb, .. } => Some(self.link.late(verb, waited.unwrap_or(give_up))),
            done => {
                self.state = done;
                None
            }
        }
    }
}

pub(super) fn compare_files(
    initiator: &MeasuringAgent<'_>,
    responder: &MeasuringAgent<'_>,
) -> Result<(), SampleFailure> {
    let (sent, received) = (checksum(initiator)?, checksum(responder)?);
    if sent == received {
        return Ok(());
    }
    let (initiator, responder) = (initiator.link.name().to_owned(), responder.link.name().to_owned());
    Err(SampleFailure::Checksum { initiator, responder, sent, received })
}

fn checksum(party: &MeasuringAgent<'_>) -> Result<u64, SampleFailure> {
    let file = party.seen().and_then(|report| report.file);
    file.map(|file| file.checksum).ok_or_else(|| SampleFailure::NoFile { agent: party.link.name().to_owned() })
}
