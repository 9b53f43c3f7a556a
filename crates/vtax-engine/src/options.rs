//! The socket options of a test, set on the sockets of both ends.

use std::{io, time::Duration};

use rustix::net::sockopt;
use socket2::Socket;
use vtax_model::{
    options::SocketOptions,
    station::Target,
    workload::{TestSpec, Transport},
};
use vtax_sys::sock::{
    choose_congestion_control, set_busy_poll, set_dscp, set_pacing_rate, set_receive_space, set_send_space,
};

use crate::error::{EngineError, Result};

/// Requested receive buffer for a UDP stream, so that a short pause of the receiver's thread causes no loss, and for a
/// test that endures an outage, whose requests wait until a stopped responder continues.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Requested send buffer for a test that endures an outage: more than the kernel keeps for a next hop that doesn't
/// answer (`unres_qlen_bytes`, 208 KiB), so that sending doesn't wait for it.
const SEND_BUFFER: usize = 1 << 20;

/// Sets the options of the test. Call this before a socket connects or listens: the buffers at that time determine a
/// connection's window scale, and accepted sockets inherit everything.
pub(crate) fn apply(socket: &Socket, spec: &TestSpec, place: &Target) -> Result<()> {
    let SocketOptions { send_buffer, receive_buffer, congestion, dscp, pacing, busy_poll, .. } = spec.options.socket;
    if spec.transport == Transport::Tcp {
        let nodelay = spec.options.socket.nodelay.unwrap_or(spec.workload.kind().is_transactions());
        socket.set_tcp_nodelay(nodelay).map_err(|error| EngineError::socket("TCP_NODELAY", place, error))?;
    }
    match send_buffer {
        Some(size) => drop(set_send_space(socket, usize::try_from(size.0).unwrap_or(usize::MAX))?),
        None if spec.options.outage.is_some() => enlarge_send_buffer(socket),
        None => {}
    }
    match receive_buffer {
        Some(size) => drop(set_receive_space(socket, usize::try_from(size.0).unwrap_or(usize::MAX))?),
        None if receives_bursts(spec) => enlarge_receive_buffer(socket),
        None => {}
    }
    congestion.map_or(Ok(()), |name| choose_congestion_control(socket, name))?;
    // The code point is the upper six bits of the traffic class.
    dscp.map_or(Ok(()), |dscp| set_dscp(socket, dscp.traffic_class() >> 2))?;
    pacing.map_or(Ok(()), |rate| set_pacing_rate(socket, Some(rate.bytes())))?;
    busy_poll.map_or(Ok(()), |span| set_busy_poll(socket, span.0))?;
    Ok(())
}

/// Returns true if so many datagrams may arrive together that they need a large buffer.
fn receives_bursts(spec: &TestSpec) -> bool {
    let is_stream = spec.workload.kind().is_stream();
    spec.transport == Transport::Udp && (is_stream || spec.options.outage.is_some())
}

/// Enlarges the buffer beyond `net.core.rmem_max` if the process may (CAP_NET_ADMIN), otherwise up to that limit. A
/// failure is ignored: a small buffer shows as loss, which is reported.
fn enlarge_receive_buffer(socket: &Socket) {
    let forced = sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER);
    let _ = forced.or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER));
}

/// Enlarges the buffer beyond `net.core.wmem_max` like [`enlarge_receive_buffer`]. Up to that limit, the kernel doubles
/// it, which is enough.
fn enlarge_send_buffer(socket: &Socket) {
    let forced = sockopt::set_socket_send_buffer_size_force(socket, SEND_BUFFER);
    let _ = forced.or_else(|_| sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER));
}

/// Sets a timeout for the blocking calls on a socket; a call that takes longer fails with EAGAIN.
pub(crate) fn set_timeout(socket: &Socket, timeout: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use vtax_model::workload::Workload;
    use vtax_model::{
        options::TestOptions,
        units::{ByteSize, Span},
        workload::Warmup,
    };

    fn applied(transport: Transport, socket: SocketOptions) -> Result<Socket> {
        let workload = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };
        let options = TestOptions { socket, ..TestOptions::default() };
        let duration = Span::from_millis(1);
        let spec = TestSpec { transport, workload, streams: 1, warmup: Warmup::NONE, duration, slices: None, options };
        let kind = if transport == Transport::Udp { Type::DGRAM } else { Type::STREAM };
        let socket = Socket::new(Domain::IPV4, kind, None).unwrap();
        apply(&socket, &spec, &Target::Ip("127.0.0.1:0".parse().unwrap()))?;
        Ok(socket)
    }

    #[test]
    fn requested_options_are_set() {
        let wanted = SocketOptions {
            send_buffer: Some(ByteSize(100_000)),
            receive_buffer: Some(ByteSize(50_000)),
            congestion: Some("reno".parse().unwrap()),
            dscp: Some("ef".parse().unwrap()),
            pacing: vtax_model::units::BitRate::new(8_000_000),
            ..SocketOptions::default()
        };
        let socket = applied(Transport::Tcp, wanted).unwrap();
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.send_buffer_size().unwrap(), 200_000);
        assert_eq!(socket.recv_buffer_size().unwrap(), 100_000);
        assert_eq!(vtax_sys::sock::congestion_control(&socket).unwrap(), "reno");
        assert_eq!(socket.tos_v4().unwrap(), 46 << 2);
        assert_eq!(vtax_sys::sock::pacing_rate(&socket).unwrap(), Some(1_000_000));
        let nagle = SocketOptions { nodelay: Some(false), ..SocketOptions::default() };
        assert!(!applied(Transport::Tcp, nagle).unwrap().tcp_nodelay().unwrap());
    }

    #[test]
    fn an_unknown_congestion_control_is_named_with_the_available_ones() {
        let wanted = SocketOptions { congestion: Some("no_such_one".parse().unwrap()), ..SocketOptions::default() };
        let error = applied(Transport::Tcp, wanted).unwrap_err();
        assert!(matches!(error, EngineError::NoCongestionControl(_)), "{error}");
        assert!(error.to_string().contains("reno"), "{error}");
    }
}
