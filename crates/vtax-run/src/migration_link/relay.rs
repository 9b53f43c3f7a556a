//! The target's end of a link over ssh: from standard input to QEMU or the agent in a guest, and back.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    thread,
};

use vtax_domain::{LdmHost, MigrationId};
use vtax_guest::migration::{MigrationCancel, MigrationChannel, SourcePulse};
use vtax_model::topology::Name;

use crate::{
    stop::{Blamed, Coded, Stop},
    threads::{start, start_in},
};

/// Number of bytes passed on at a time.
const PIECE: usize = 256 << 10;

/// Receives a domain whose memory is read from `input`, or through [`receive_channel`], and answers its source on
/// `output`. Arriving bytes show that the source makes progress. If `input` ends before the domain is loaded, the attempt
/// ends.
pub fn receive_guest(
    host: &LdmHost,
    name: &Name,
    id: &MigrationId,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), Stop> {
    let sockets = UnixStream::pair().coded("kernel", || "connecting QEMU to the source of a migration");
    let (here, qemu) = sockets.or_infrastructure()?;
    let (pulse, cancel) = (SourcePulse::default(), MigrationCancel::default());
    let end = cancel.clone();
    relay((input, output), here, &pulse, move || end.cancel())?;
    Ok(host.receive_guest(name, id, qemu.into(), &pulse, &cancel)?)
}

/// Receives a disk of a domain, as [`receive_guest`] receives its memory. The disk stays connected until the attempt
/// has ended.
pub fn receive_disk(
    host: &LdmHost,
    name: &Name,
    id: &MigrationId,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), Stop> {
    let pulse = SourcePulse::default();
    let disks = host.open_disks(name, id, &pulse)?;
    // The source disconnects when the copy is complete. If the source has died, nothing more arrives on any connection.
    relay((input, output), disks.into(), &pulse, || {})?;
    Ok(host.await_attempt(name, id, &pulse)?)
}

/// Receives a channel of a domain's memory, for [`receive_guest`] in another process.
pub fn receive_channel(
    host: &LdmHost,
    (name, id): (&Name, &MigrationId),
    channel: MigrationChannel,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), Stop> {
    let pulse = SourcePulse::default();
    let Some(qemu) = host.open_channel(name, id, channel, &pulse)? else { return Ok(()) };
    relay((input, output), qemu, &pulse, || {})?;
    Ok(host.await_attempt(name, id, &pulse)?)
}

/// Connects the QEMUs of both ends on this machine, until both directions have ended. `ended` is called for each.
pub(super) fn join(source: &UnixStream, target: &UnixStream, ended: impl Fn() + Sync) -> Result<(), Stop> {
    thread::scope(|scope| {
        let answers = || {
            forward(target, source);
            ended();
        };
        start_in(scope, "answers", answers).or_infrastructure()?;
        forward(source, target);
        ended();
        Ok(())
    })
}

fn forward(from: &UnixStream, to: &UnixStream) {
    let ends = pass(from, to, || {}).map_or([(from, Shutdown::Both), (to, Shutdown::Both)], |()| {
        // The other direction may still be in use.
        [(from, Shutdown::Read), (to, Shutdown::Write)]
    });
    // An end that is gone needs nothing more.
    ends.iter().for_each(|(end, how)| drop(end.shutdown(*how)));
}

/// Relays between the source and QEMU in the background. `end` is called when no more data arrives.
fn relay(
    (input, output): (impl Read + Send + 'static, impl Write + Send + 'static),
    qemu: UnixStream,
    pulse: &SourcePulse,
    end: impl FnOnce() + Send + 'static,
) -> Result<(), Stop> {
    let answers = qemu.try_clone().coded("kernel", || "connecting QEMU to the source of a migration");
    let (answers, beat) = (answers.or_infrastructure()?, pulse.clone());
    start("source", move || {
        // Whatever ends it, no more data will arrive.
        let _ = pass(input, &qemu, || beat.beat());
        end();
        let _ = qemu.shutdown(Shutdown::Write);
    })
    .or_infrastructure()?;
    start("answers", move || drop(pass(answers, output, || {}))).or_infrastructure()
}

/// Connects `input` and `output` to the agent in an active domain, until either side ends.
pub fn reach_agent(
    host: &LdmHost,
    domain: &Name,
    input: impl Read + Send + 'static,
    output: impl Write,
) -> Result<(), Stop> {
    let (_, qemu) = host.domains()?.active(domain)?;
    let path = qemu.launch().agent_socket();
    let sockets = UnixStream::connect(&path).and_then(|agent| Ok((agent.try_clone()?, agent)));
    let (questions, answers) = sockets.coded("file", || format!("{}", path.display())).or_infrastructure()?;
    start("questions", move || {
        let _ = pass(input, &questions, || {});
        let _ = questions.shutdown(Shutdown::Both);
    })
    .or_infrastructure()?;
    // Whatever ends it, the other side notices.
    let _ = pass(answers, output, || {});
    Ok(())
}

/// Copies until the end of `from`. Each piece is passed on immediately.
fn pass(mut from: impl Read, mut to: impl Write, mut moved: impl FnMut()) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                moved();
                to.write_all(&piece[..count]).and_then(|()| to.flush())?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufWriter;

    use super::*;

    #[test]
    fn all_bytes_are_passed_on_and_each_piece_is_a_sign_of_life() {
        let sent: Vec<u8> = (0..3 * PIECE + 7).map(|byte| byte as u8).collect();
        let (mut arrived, mut signs) = (Vec::new(), 0);
        pass(sent.as_slice(), BufWriter::new(&mut arrived), || signs += 1).expect("in memory");
        assert_eq!((arrived == sent, signs), (true, 4));
    }

    #[test]
    fn joined_ends_notice_each_other_s_end() {
        let pair = || UnixStream::pair().expect("sockets");
        let ((mut source, near), (far, mut target)) = (pair(), pair());
        let joined = std::thread::spawn(move || join(&near, &far, || {}).expect("two threads"));
        source.write_all(b"memory").and_then(|()| source.shutdown(Shutdown::Write)).expect("it is connected");
        let mut read = String::new();
        target.read_to_string(&mut read).expect("it is connected");
        // Answers still arrive.
        target.write_all(b"loaded").expect("it is connected");
        drop(target);
        let mut answer = String::new();
        source.read_to_string(&mut answer).expect("it is connected");
        joined.join().expect("no panic");
        assert_eq!((read.as_str(), answer.as_str()), ("memory", "loaded"));
    }

    #[test]
    fn a_dead_target_ends_the_source_s_connection() {
        let pair = || UnixStream::pair().expect("sockets");
        let ((mut source, near), (far, target)) = (pair(), pair());
        drop(target);
        let joined = std::thread::spawn(move || join(&near, &far, || {}).expect("two threads"));
        while source.write_all(&[0; 4096]).is_ok() {}
        joined.join().expect("no panic");
    }

    #[test]
    fn a_closed_reader_ends_it() {
        let (here, there) = UnixStream::pair().expect("sockets");
        drop(there);
        assert!(pass([1; 10].as_slice(), here, || {}).is_err());
    }
}
