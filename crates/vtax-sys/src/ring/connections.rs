//! Connecting and accepting on a ring.

use std::io;
use std::os::fd::OwnedFd;

use io_uring::opcode;
use io_uring::types::Fixed;
use socket2::SockAddr;

use super::slots::{Operation, Slots, no_such_slot};

impl Slots {
    /// Queues the connection of the slot's socket. It waits as long as the kernel tries, even on a non-blocking socket.
    ///
    /// # Errors
    /// `ResourceBusy` while the slot's socket is being connected; `InvalidInput` if there is no such slot;
    /// `NotConnected` if it has no socket; the kernel's error, if it accepts no more requests.
    pub fn submit_connect(&mut self, slot: usize, target: &SockAddr) -> io::Result<()> {
        self.check_socket(slot)?;
        if self.is_in_flight(slot, Operation::Connect) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let address = self.slots[slot].address.insert(Box::new(target.clone()));
        let request = opcode::Connect::new(Fixed(slot as u32), address.as_ptr().cast(), address.len());
        // SAFETY: the address stays in its box until the request is complete, in the table of slots until no request is
        // in flight.
        unsafe { self.submit(slot, Operation::Connect, request.build()) }
    }

    /// Queues accepting a connection on the listening socket in slot `door`. When the request is complete,
    /// [`Slots::take_accepted`] returns the connection.
    pub fn submit_accept(&mut self, slot: usize, door: usize) -> io::Result<()> {
        self.check_socket(door)?;
        if slot >= self.slots.len() {
            return Err(no_such_slot());
        }
        let request = opcode::Accept::new(Fixed(door as u32), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: it points to nothing.
        unsafe { self.submit(slot, Operation::Accept, request.flags(libc::SOCK_CLOEXEC).build()) }
    }

    /// Returns the last connection accepted for the slot, only once.
    pub fn take_accepted(&mut self, slot: usize) -> Option<OwnedFd> {
        self.slots.get_mut(slot)?.accepted.take()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::super::Completion;
    use super::*;

    const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

    fn wait_for<const N: usize>(slots: &mut Slots) -> [Completion; N] {
        let mut done = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while done.len() < N {
            assert!(Instant::now() < deadline, "timed out");
            slots.wait(1, PATIENCE, &mut done).unwrap();
        }
        done.try_into().unwrap()
    }

    fn wait_one(slots: &mut Slots) -> Completion {
        let [done] = wait_for(slots);
        done
    }

    fn socket() -> socket2::Socket {
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap()
    }

    #[test]
    fn a_connection_is_opened_accepted_and_used() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slots = Slots::new(3, 4, 4).unwrap();
        slots.attach(2, &listener).unwrap();
        slots.submit_accept(1, 2).unwrap();
        assert_eq!(slots.submit_accept(1, 2).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(slots.wait(1, Some(Duration::from_millis(80)), &mut Vec::new()).unwrap(), 0);

        slots.attach(0, socket()).unwrap();
        slots.submit_connect(0, &listener.local_addr().unwrap().into()).unwrap();
        let mut operations = wait_for::<2>(&mut slots).map(|done| {
            assert_eq!(done.result.unwrap(), 0);
            (done.slot, done.operation)
        });
        operations.sort_by_key(|(slot, _)| *slot);
        assert_eq!(operations, [(0, Operation::Connect), (1, Operation::Accept)]);

        let accepted = slots.take_accepted(1).unwrap();
        assert!(slots.take_accepted(1).is_none());
        slots.attach(1, &accepted).unwrap();
        slots.send_buffer(0).unwrap().copy_from_slice(b"ping");
        slots.submit_send(0, 0..4, false).unwrap();
        assert_eq!(wait_one(&mut slots).operation, Operation::Send);
        slots.submit_receive(1, 0..4).unwrap();
        assert_eq!(wait_one(&mut slots).operation, Operation::Receive);
        assert_eq!(slots.receive_buffer(1).unwrap(), b"ping");
    }

    #[test]
    fn where_nothing_listens_a_connection_is_refused() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut slots = Slots::new(1, 0, 0).unwrap();
        assert_eq!(slots.submit_connect(0, &address.into()).unwrap_err().kind(), io::ErrorKind::NotConnected);
        slots.attach(0, socket()).unwrap();
        slots.submit_connect(0, &address.into()).unwrap();
        let refused = wait_one(&mut slots).result.unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
    }

    /// Connections that nobody took are closed.
    #[test]
    fn dropping_closes_what_was_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slots = Slots::new(2, 0, 0).unwrap();
        slots.attach(1, &listener).unwrap();
        slots.submit_accept(0, 1).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(wait_one(&mut slots).operation, Operation::Accept);
        slots.submit_accept(0, 1).unwrap();
        drop(slots);
        stream.set_read_timeout(PATIENCE).unwrap();
        assert_eq!(io::Read::read(&mut stream, &mut [0]).unwrap(), 0);
    }
}
