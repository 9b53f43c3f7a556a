//! What the options of `vtax measure` take.

use std::str::FromStr;

use vtax_model::{
    options::{ArrivalProcess, Engine, OptionError, Sending},
    units::{Span, UnitError},
    workload::Transport,
};

use crate::one_of::Choice;

pub(crate) fn tests_help() -> String {
    let transports = Transport::ALL.map(|transport| transport.to_string().to_ascii_lowercase()).join(", ");
    format!(
        "A transport and a test, as tcp-rr. Transports: {transports}. Tests: rr (request, response), crr (connect, \
         request, response), cc (connect, close), stream, maerts (stream from the responder), bidirectional"
    )
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Engines(pub(crate) Vec<Engine>);

impl FromStr for Engines {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        if text == "all" {
            return Ok(Engines(Engine::ALL.to_vec()));
        }
        let mut engines = text.split(',').map(str::parse).collect::<Result<Vec<Engine>, _>>()?;
        engines.sort_unstable();
        engines.dedup();
        Ok(Engines(engines))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap(pub(crate) Option<Span>);

impl FromStr for Gap {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text {
            "0" => Ok(Gap(None)),
            _ => text.parse().map(|span: Span| Gap((!span.0.is_zero()).then_some(span))),
        }
    }
}

pub(crate) const ARRIVALS: [Choice<ArrivalProcess>; 2] = [
    ("poisson", "As independent users come: exponential gaps", ArrivalProcess::Poisson),
    ("fixed", "Evenly", ArrivalProcess::Fixed),
];

pub(crate) const SENDING: [Choice<Sending>; 3] = [
    ("copy", "send(2) copies them", Sending::Copy),
    ("zerocopy", "MSG_ZEROCOPY lends the pages", Sending::ZeroCopy),
    ("sendfile", "sendfile(2) from the page cache", Sending::SendFile),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_each_there_once() {
        assert_eq!("all".parse::<Engines>().map(|engines| engines.0.len()), Ok(4));
        let two = Engines(vec![Engine::Blocking, Engine::Epoll]);
        assert_eq!("epoll,blocking,epoll".parse::<Engines>(), Ok(two));
        assert!("epoll,".parse::<Engines>().is_err());
    }

    #[test]
    fn a_gap_of_nothing_is_none() {
        for text in ["0", "0ms"] {
            assert_eq!(text.parse::<Gap>(), Ok(Gap(None)));
        }
        assert_eq!("1ms".parse::<Gap>(), Ok(Gap(Some(Span::from_millis(1)))));
        assert!("1".parse::<Gap>().is_err());
    }
}
