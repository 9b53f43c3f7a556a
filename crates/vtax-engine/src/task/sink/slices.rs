//! The receiving end of a sliced stream: see the [sending end](crate::task::source::slices).
//!
//! A slice has a lead, counted from its first bytes. The measured time begins after the lead and ends with
//! the slice's last bytes. So everything that arrived after the lead is counted, with all the time that it
//! took.

use vtax_sys::clock::now_ns;

use super::{Came, Sink};
use crate::{
    account::{Sender, after},
    drive::{Io, WaitUntil},
    error::{EngineError, Result},
    sequence::Sequence,
    task::FlowOnPoller,
    wire::{FlowGreeting, HELLO_LEN, PAUSED, hello},
};

/// Receives the warm-up and each slice, and continues until the sender has ended.
pub(crate) async fn receive<I: Io>(line: FlowOnPoller<'_, I>, message: usize) -> Result<()> {
    let mut sink = Sink::new(line, message)?;
    let passes = sink.line.flow.session.spec.slices.map_or(0, |slices| slices.passes);
    // The warm-up is slice 0, which isn't counted.
    for number in 0..=passes {
        sink.receive_slice(number).await?;
    }
    sink.line.desk.shared.one_has_finished();
    while sink.take(WaitUntil::Patience).await? != Some(0) {}
    sink.count_whole_flow()
}

impl<I: Io> Sink<'_, I> {
    async fn receive_slice(&mut self, number: u32) -> Result<()> {
        let desk = self.line.desk;
        self.line.flow.acknowledge_at_once()?;
        let word = hello(&self.line.flow.session.token, number);
        let mut tail = [0; HELLO_LEN];
        let mut led = None;
        let mut open = false;
        loop {
            let (len, last) = self.part(number, &word, &mut tail).await?;
            let now = now_ns();
            if led.is_none() {
                desk.begun(now);
                self.line.has_begun();
            }
            let led = *led.get_or_insert_with(|| after(now, self.line.flow.session.spec.lead()));
            if open && len > 0 {
                desk.bytes(len, now)?;
            }
            if number > 0 && !open && (last || now >= led) {
                desk.open(Sender::Here)?;
                self.tally.sequence.iter_mut().for_each(Sequence::open);
                open = true;
            }
            if last {
                return self.end_slice(number, open);
            }
        }
    }

    fn end_slice(&mut self, number: u32, open: bool) -> Result<()> {
        if open {
            self.tally.close(&self.line.desk)?;
        }
        match self.line.is_datagram() {
            true => self.line.flow.greet_with(number, FlowGreeting::Paused),
            false => self.line.flow.say(PAUSED),
        }
    }

    /// Returns the bytes of a part of the slice, and whether the slice is over after them.
    async fn part(&mut self, number: u32, word: &[u8; HELLO_LEN], tail: &mut [u8; HELLO_LEN]) -> Result<(usize, bool)> {
        match self.line.is_datagram() {
            true => self.datagram(number).await,
            false => self.bytes(word, tail).await,
        }
    }

    /// Reads bytes up to `word`, the end of the slice. Nothing follows it, because the sender waits for an answer. It
    /// may arrive in pieces.
    async fn bytes(&mut self, word: &[u8; HELLO_LEN], tail: &mut [u8; HELLO_LEN]) -> Result<(usize, bool)> {
        let look = |bytes: &[u8]| {
            keep_last(tail, bytes);
            (bytes.len(), tail == word)
        };
        match self.line.receive(usize::MAX, WaitUntil::Patience, look).await? {
            (0, _) => Err(self.line.flow.ended("receive")),
            (len, true) => Ok((len.saturating_sub(HELLO_LEN), true)),
            (len, false) => Ok((len, false)),
        }
    }

    /// The end of an earlier slice is a retransmission.
    async fn datagram(&mut self, slice: u32) -> Result<(usize, bool)> {
        loop {
            match self.call(WaitUntil::Patience).await? {
                Came::Datagram(number) => {
                    if let Some(len) = self.tally.count(number) {
                        return Ok((len, false));
                    }
                }
                Came::Greeting(number, FlowGreeting::Pause) if number == slice => return Ok((0, true)),
                Came::Greeting(number, greeting) => {
                    if self.answer(number, greeting)? == Some(0) {
                        return Err(self.line.flow.ended("receive"));
                    }
                }
                Came::Ended => return Err(self.line.flow.ended("receive")),
                Came::Other if self.line.flow.session.is_stopped() => return Err(EngineError::Cancelled),
                Came::Bytes(_) | Came::Other | Came::Nothing => {}
            }
        }
    }
}

/// Keeps the last bytes received.
fn keep_last(tail: &mut [u8; HELLO_LEN], bytes: &[u8]) {
    let len = bytes.len().min(HELLO_LEN);
    tail.copy_within(len.., 0);
    tail[HELLO_LEN - len..].copy_from_slice(&bytes[bytes.len() - len..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_slice_is_recognized_in_pieces() {
        let word: Vec<u8> = (1..=HELLO_LEN as u8).collect();
        let stream = [vec![0x55; 100], word.clone()].concat();
        for piece in 1..=stream.len() {
            let mut tail = [0; HELLO_LEN];
            let mut seen = Vec::new();
            for bytes in stream.chunks(piece) {
                keep_last(&mut tail, bytes);
                seen.push(tail[..] == word[..]);
            }
            assert_eq!(seen.pop(), Some(true), "pieces of {piece}");
            assert!(!seen.contains(&true), "pieces of {piece}");
        }
    }
}
