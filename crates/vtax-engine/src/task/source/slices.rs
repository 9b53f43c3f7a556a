//! The sending end of a sliced stream.
//!
//! A slice consists of messages and a last message that marks its end. The receiver answers this one when it has
//! received everything before it. So nothing of this flow is in flight during other rows' slices. The ends share no
//! clock: each counts its work between two times on its own clock.

use rustix::{
    io::Errno,
    net::{SendFlags, send as send_bytes},
};
use socket2::Socket;
use vtax_sys::clock::now_ns;

use super::{MS, Source};
use crate::{
    account::{Sender, after},
    drive::{Io, WaitUntil},
    error::Result,
    task::{FlowOnPoller, handover::Handover},
    wire::{FlowGreeting, GREETING_LEN, PAUSED, hello},
};

/// Warms up, and sends each slice when its time has come.
pub(crate) async fn send<I: Io>(line: FlowOnPoller<'_, I>, message: usize) -> Result<()> {
    let desk = line.desk;
    line.has_begun();
    let handover = Handover::new(line.flow, message)?;
    let mut now = now_ns();
    desk.begun(now);
    let mut source = Source::new(line, message, handover, now);
    let mut len = 0;
    while desk.warming(now, len as u64) {
        len = source.send().await?;
        now = now_ns();
    }
    source.pause(0).await?;
    for (number, start) in (1..).zip(desk.turns()) {
        source.line.sleep(start).await?;
        source.send_slice().await?;
        source.pause(number).await?;
        desk.slot_ended(start, now_ns());
    }
    source.line.sleep(desk.shared.schedule.ends).await?;
    desk.report().whole_flow += source.handover.datagrams();
    source.say_end().await
}

impl<I: Io> Source<'_, I> {
    async fn send_slice(&mut self) -> Result<()> {
        let desk = self.line.desk;
        let led = after(now_ns(), self.line.flow.session.spec.lead());
        while now_ns() < led {
            self.send().await?;
        }
        let mut now = desk.open(Sender::There)?;
        let (_, closes) = desk.window();
        while now < closes {
            let len = self.send().await?;
            now = now_ns();
            desk.bytes(len, now)?;
        }
        desk.close()
    }

    /// Marks the end of the slice with this number, and waits until the receiver has all of it.
    async fn pause(&mut self, number: u32) -> Result<()> {
        match self.line.is_datagram() {
            true => self.pause_datagrams(number).await,
            false => self.pause_bytes(number).await,
        }
    }

    /// The message must not wait until earlier data is acknowledged, as Nagle's algorithm would make it.
    async fn pause_bytes(&mut self, number: u32) -> Result<()> {
        let flow = self.line.flow;
        let session = &flow.session;
        let keeps = session.spec.options.socket.nodelay == Some(true);
        flow.option("TCP_NODELAY", flow.socket.set_tcp_nodelay(true))?;
        let word = hello(&session.token, number);
        let mut said = 0;
        while said < word.len() {
            let call =
                |socket: &Socket, _: &mut [u8], flags| send_bytes(socket, &word[said..], flags | SendFlags::NOSIGNAL);
            said += self.line.io.send_by(call).await.map_err(|errno| self.line.failed("send", errno))?;
        }
        flow.option("TCP_NODELAY", flow.socket.set_tcp_nodelay(keeps))?;
        match self.line.receive_all(1).await? {
            PAUSED => Ok(()),
            _ => Err(flow.strange("another message than the end of a slice")),
        }
    }

    /// Repeats the end until it is answered, because the receiver's buffer may be full.
    async fn pause_datagrams(&mut self, number: u32) -> Result<()> {
        let flow = self.line.flow;
        let latest = after(now_ns(), flow.session.patience.silence);
        loop {
            flow.greet_with(number, FlowGreeting::Pause)?;
            let again = now_ns() + MS;
            let look = |datagram: &[u8]| FlowGreeting::read(datagram, &flow.session.token);
            match self.line.io.receive(GREETING_LEN + 1, WaitUntil::Moment(again), look).await {
                Ok(Some(answer)) if answer == (number, FlowGreeting::Paused) => return Ok(()),
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(self.line.failed("receive", errno)),
            }
            flow.session.check_stopped()?;
            if now_ns() >= latest {
                return Err(flow.failed("end a slice", Errno::AGAIN, flow.session.patience.silence));
            }
        }
    }
}
