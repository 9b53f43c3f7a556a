//! ICMP echo requests, as ping(8) sends them: the initiator. The other end's kernel answers them, so the
//! responder only counts the CPU time of its machine.
//!
//! The socket is the unprivileged one of icmp(7), "ICMP sockets". The kernel writes the identifier and the checksum,
//! and delivers only replies with that identifier. The payload begins with the stamp of a UDP request, and includes its
//! token if there is space. So the initiator recognizes a reply that is late or from another source.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    FlowOnPoller,
    connections::Dial,
    requests::{Requests, TransactionOutcome},
    transactions::{self, Transactions},
};
use crate::{
    account::FlowRecorder,
    drive::{Habit, Io, Message, Poller, WaitUntil},
    error::{EngineError, Result},
    flow::Flow,
    options, socket,
    wire::Mark,
};
use vtax_model::station::Target;

/// Type, code, checksum, identifier, sequence number: RFC 792, and RFC 4443 for IPv6.
pub(crate) const HEADER: usize = 8;

/// The ICMP types of a request and of its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Types {
    request: u8,
    reply: u8,
}

impl Types {
    pub(crate) fn of(address: IpAddr) -> Types {
        match address {
            IpAddr::V4(_) => Types { request: 8, reply: 0 },
            IpAddr::V6(_) => Types { request: 128, reply: 129 },
        }
    }

    fn protocol(self) -> Protocol {
        if self.reply == 0 { Protocol::ICMPV4 } else { Protocol::ICMPV6 }
    }

    /// A socket for the echo requests of this process.
    pub(crate) fn socket(self, peer: &Target) -> Result<Socket> {
        let domain = if self.reply == 0 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM, Some(self.protocol()));
        socket.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::ACCESS) => EngineError::Unsupported {
                what: "ICMP echo",
                why: "this process's group may not open ICMP sockets; allow it: sysctl -w \
                      net.ipv4.ping_group_range=\"0 2147483647\"",
            },
            _ => EngineError::socket("socket", peer, error),
        })
    }

    /// A request: the header and the first bytes of the payload.
    pub(crate) fn request(self, head: &[u8]) -> ([u8; HEADER + HEAD_MOST], usize) {
        let mut message = [0; HEADER + HEAD_MOST];
        message[0] = self.request;
        message[HEADER..HEADER + head.len()].copy_from_slice(head);
        (message, HEADER + head.len())
    }

    /// The payload of a reply; empty if the message isn't a reply.
    pub(crate) fn payload(self, message: &[u8]) -> &[u8] {
        match message.split_at_checked(HEADER) {
            Some((header, payload)) if header[..2] == [self.reply, 0] => payload,
            _ => &[],
        }
    }
}

/// Bytes of the stamp and the token.
const HEAD_MOST: usize = 24;

/// Sends one request after another, on its own socket.
pub(crate) async fn initiate<E: Poller>(engine: &E, desk: FlowRecorder<'_>, index: u32, dial: &Dial<'_>) -> Result<()> {
    let Target::Ip(address) = dial.target else { unreachable!("ICMP was checked to have an IP address") };
    let types = Types::of(address.ip());
    let peer = Target::Ip(SocketAddr::new(address.ip(), 0));
    let flow = Flow::new(index, open(types, dial, &peer)?, peer, &desk.shared.session);
    flow.check_datagrams()?;
    let line = FlowOnPoller::new(engine, &flow, desk, Habit::Turns).with_io(|io| EchoIo { io, types });
    transactions::run(desk, &mut Requests::new(line, dial.sizes)).await
}

fn open(types: Types, dial: &Dial<'_>, peer: &Target) -> Result<Socket> {
    let socket = types.socket(peer)?;
    options::apply(&socket, &dial.session.spec, peer)?;
    socket::bind_device(&socket, dial.station)?;
    socket::bind_to(&socket, dial.station)?;
    socket.connect(&socket::address(peer)?).map_err(|error| EngineError::connecting(peer, error))?;
    Ok(socket)
}

impl<I: Io> Transactions for Requests<'_, EchoIo<I>> {
    async fn next(&mut self) -> Result<bool> {
        Ok(self.exchange(Mark::None).await? == TransactionOutcome::Answered)
    }
}

/// Adds the header to each request, and removes it from each reply.
pub(crate) struct EchoIo<I> {
    io: I,
    types: Types,
}

impl<I: Io> Io for EchoIo<I> {
    async fn send(&self, message: Message<'_>) -> Result<usize, Errno> {
        let (head, len) = self.types.request(message.head);
        self.io.send(Message::whole(&head[..len], HEADER + message.len)).await.map(|sent| sent.saturating_sub(HEADER))
    }

    async fn receive<R>(&self, most: usize, until: WaitUntil, look: impl FnOnce(&[u8]) -> R) -> Result<R, Errno> {
        self.io.receive(HEADER + most, until, |message| look(self.types.payload(message))).await
    }

    async fn sleep(&self, until: u64) -> Result<(), Errno> {
        self.io.sleep(until).await
    }

    fn set_patience(&self, patience: Duration) {
        self.io.set_patience(patience);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V4: Types = Types { request: 8, reply: 0 };

    #[test]
    fn a_request_has_its_header_before_the_head() {
        let (message, len) = V4.request(&[1, 2, 3]);
        assert_eq!(message[..len], [8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
        let six = Types::of("::1".parse().expect("an address"));
        assert_eq!(six.request(&[]).0[0], 128);
        assert_eq!(six.payload(&[129, 0, 9, 9, 9, 9, 0, 0, 5]), [5]);
    }

    proptest! {
        #[test]
        fn no_message_makes_the_reader_panic(message in proptest::collection::vec(any::<u8>(), 0..40)) {
            let payload = V4.payload(&message);
            prop_assert!(payload.len() + HEADER <= message.len().max(HEADER));
            prop_assert!(payload.is_empty() || message[..2] == [0, 0]);
        }
    }
}
