//! Values of the options of `vtax measure`.

use std::{net::IpAddr, str::FromStr};

use vtax_model::{
    endpoint::DeviceName,
    options::{ArrivalProcess, Engine, OptionError, Sending},
    units::{Span, UnitError},
    workload::Transport,
};

use crate::one_of::Choice;

pub(crate) fn tests_help() -> String {
    let transports = Transport::ALL.map(|transport| transport.to_string().to_ascii_lowercase()).join(", ");
    format!(
        "Transport and test, e.g. tcp-rr. Transports: {transports}. Tests: rr (request, response), crr (connect, \
         request, response), cc (connect, close), stream, maerts (stream from the responder), bidirectional, multicast (datagrams to a \
         group)"
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
    ("poisson", "Exponential gaps, like requests of independent users", ArrivalProcess::Poisson),
    ("fixed", "Constant gaps", ArrivalProcess::Fixed),
];

pub(crate) const SENDING: [Choice<Sending>; 3] = [
    ("copy", "send(2) copies them to the kernel", Sending::Copy),
    ("zerocopy", "MSG_ZEROCOPY passes their pages without a copy", Sending::ZeroCopy),
    ("sendfile", "sendfile(2) from the page cache", Sending::SendFile),
];

/// An address; a link-local one may include its link: `fe80::1%eth0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddressOnLink {
    pub(super) address: IpAddr,
    pub(super) link: Option<DeviceName>,
}

impl FromStr for AddressOnLink {
    type Err = String;

    fn from_str(text: &str) -> Result<AddressOnLink, String> {
        let (address, link) = text.split_once('%').map_or((text, None), |(address, link)| (address, Some(link)));
        let address = address.parse::<IpAddr>();
        let address = address.map_err(|error| format!("{error}; use e.g. 192.0.2.1 or fe80::1%eth0"))?;
        let link = link.map(str::parse::<DeviceName>).transpose().map_err(|error| error.to_string())?;
        match address {
            IpAddr::V6(own) if own.is_unicast_link_local() => {}
            _ if link.is_some() => return Err("only a link-local address (fe80::…) can have a link after %".to_owned()),
            _ => {}
        }
        Ok(AddressOnLink { address, link })
    }
}

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
    fn an_address_may_have_its_link() {
        let AddressOnLink { address, link } = "fe80::1%eth0".parse().expect("an address");
        assert_eq!((address.to_string().as_str(), link.expect("a link").as_str()), ("fe80::1", "eth0"));
        assert_eq!("192.0.2.1".parse::<AddressOnLink>().map(|address| address.link), Ok(None));
        for text in ["192.0.2.1%eth0", "2001:db8::1%eth0", "fe80::1%", "fe80::1%et h0", "host"] {
            assert!(text.parse::<AddressOnLink>().is_err(), "{text}");
        }
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
