//! Channels of a migration with several connections (multifd): QEMU connects them to a socket in its own directory.
//!
//! The main channel has the state of the devices, each other one a part of the memory. QEMU opens the main channel
//! first and tells the others apart by what they send. Without TLS, a target before QEMU 8.0 takes the first connection
//! as the main channel, and so does every target with TLS. Therefore [`connect_channel`] lets no other one be first.

use std::{
    fmt,
    fs::{self, File},
    io,
    num::NonZeroU8,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            fs::MetadataExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    str::FromStr,
};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, openat};

use crate::{error::GuestError, launch::Launch};

/// The socket at which QEMU, or at the source vtax, awaits channels. No other socket of QEMU has a longer name, so the
/// path is short enough.
pub(super) const SOCKET: &str = "migrate.sock";
/// Its name at the target once the main channel is connected.
const AFTER_MAIN: &str = "memory.sock";

/// Channel of a migration with several connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationChannel {
    /// The first one, with the state of the devices.
    Main,
    /// Pages of the guest. There is at least one.
    Memory,
}

impl fmt::Display for MigrationChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MigrationChannel::Main => "main",
            MigrationChannel::Memory => "memory",
        })
    }
}

impl FromStr for MigrationChannel {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<MigrationChannel, &'static str> {
        match text {
            "main" => Ok(MigrationChannel::Main),
            "memory" => Ok(MigrationChannel::Memory),
            _ => Err("use main or memory"),
        }
    }
}

/// The source's channels, which its QEMU opens one after another.
#[derive(Debug)]
pub struct OutgoingChannels {
    path: PathBuf,
    /// None once all have been opened.
    listener: Option<UnixListener>,
    is_main_open: bool,
    memory_left: u8,
}

impl OutgoingChannels {
    /// Awaits a main channel and this many for memory.
    pub fn listen(launch: &Launch, channels: NonZeroU8) -> Result<OutgoingChannels, GuestError> {
        let path = launch.directory.join(SOCKET);
        let listen = || {
            let folder = File::open(&launch.directory)?;
            let owner = folder.metadata()?;
            // Left by an attempt whose vtax was killed.
            fs::remove_file(&path).or_else(absent)?;
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            // The directory belongs to QEMU's user, which is not trusted: a link that replaces the socket is not
            // followed.
            let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
            chownat(folder.as_fd(), SOCKET, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(listener)
        };
        let listener = listen().map_err(GuestError::file("listen at", &path))?;
        Ok(OutgoingChannels { path, listener: Some(listener), is_main_open: false, memory_left: channels.get() })
    }

    /// Returns true if there will be no more.
    pub fn are_all_open(&self) -> bool {
        self.listener.is_none()
    }

    /// Returns the next channel that QEMU has opened. None if there is none at the moment, or no more.
    pub fn accept(&mut self) -> Result<Option<(MigrationChannel, OwnedFd)>, GuestError> {
        let Some(listener) = &self.listener else { return Ok(None) };
        let socket: OwnedFd = match listener.accept() {
            Ok((socket, _)) => socket.into(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(GuestError::file("accept a connection at", &self.path)(error)),
        };
        if !self.is_main_open {
            self.is_main_open = true;
            return Ok(Some((MigrationChannel::Main, socket)));
        }
        self.memory_left = self.memory_left.saturating_sub(1);
        if self.memory_left == 0 {
            self.listener = None;
        }
        Ok(Some((MigrationChannel::Memory, socket)))
    }
}

impl Drop for OutgoingChannels {
    fn drop(&mut self) {
        // It is removed with the guest's directory, too.
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects a channel to the target's QEMU. Returns None if it doesn't listen yet, or if its main channel isn't
/// connected yet.
pub fn connect_channel(launch: &Launch, channel: MigrationChannel) -> Result<Option<UnixStream>, GuestError> {
    let (before, after) = (launch.directory.join(SOCKET), launch.directory.join(AFTER_MAIN));
    let path = if channel == MigrationChannel::Main { &before } else { &after };
    let socket = match connect(path) {
        // The socket exists a moment before QEMU listens.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        connected => connected.map_err(GuestError::file("connect to", path))?,
    };
    if channel == MigrationChannel::Main {
        fs::rename(&before, &after).map_err(GuestError::file("rename", &before))?;
    }
    Ok(Some(socket))
}

/// Connects to a socket in the directory of QEMU's user, which is not trusted: what the source sends must not reach
/// another socket, which only we may use. A link is not followed, and refuses the connection.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let found = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    UnixStream::connect(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

fn absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::fs::symlink,
    };

    use super::*;
    use crate::launch::{Boot, GuestEngine, QemuProgram, Version};

    fn launch(directory: &Path) -> Launch {
        let qemu = QemuProgram {
            path: "qemu".into(),
            version: Version { major: 10, minor: 0 },
            sandbox: true,
            q35: None,
            qboot: None,
        };
        let boot = Boot::Kernel { kernel: "/kernel".into(), initramfs: "/initramfs".into(), append: Vec::new() };
        let engine = GuestEngine { qemu, accel: vtax_model::guest::Accelerator::Tcg, boot };
        Launch::new("web".parse().expect("a name"), directory.to_owned(), engine, &Default::default())
    }

    fn channels(count: u8) -> NonZeroU8 {
        NonZeroU8::new(count).expect("not zero")
    }

    #[test]
    fn the_source_takes_as_many_channels_as_announced_the_main_one_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let launch = launch(folder.path());
        let path = folder.path().join(SOCKET);
        // Neither a killed vtax nor QEMU's user can keep it from listening, or lead it elsewhere.
        let other = folder.path().join("other");
        fs::write(&other, "").expect("a file of the test");
        symlink(&other, &path).expect("a link of the test");
        let mut outgoing = OutgoingChannels::listen(&launch, channels(2)).expect("it listens");
        assert!(outgoing.accept().expect("it listens").is_none());
        let open = || UnixStream::connect(&path);
        let _opened: Vec<UnixStream> = (0..3).map(|_| open().expect("it listens")).collect();
        let mut next = || outgoing.accept().expect("it listens").map(|(channel, _)| channel);
        let (main, memory) = (Some(MigrationChannel::Main), Some(MigrationChannel::Memory));
        assert_eq!([next(), next(), next(), next()], [main, memory, memory, None]);
        assert!(outgoing.are_all_open() && open().is_err(), "no one else connects");
        drop(outgoing);
        assert!(!path.exists() && other.exists());
    }

    #[test]
    fn no_channel_reaches_the_target_before_the_main_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let launch = launch(folder.path());
        let connect = |channel| connect_channel(&launch, channel).expect("nothing is wrong");
        assert!(connect(MigrationChannel::Main).is_none(), "QEMU does not listen yet");
        let qemu = UnixListener::bind(folder.path().join(SOCKET)).expect("as QEMU listens");
        assert!(connect(MigrationChannel::Memory).is_none());
        let mut main = connect(MigrationChannel::Main).expect("QEMU listens");
        let _memory = connect(MigrationChannel::Memory).expect("the main channel is connected");
        main.write_all(b"m").expect("it is connected");
        let mut first = [0];
        qemu.accept().expect("two are connected").0.read_exact(&mut first).expect("it was sent");
        assert_eq!(first, *b"m");
    }

    #[test]
    fn no_channel_follows_a_link_to_another_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let launch = launch(folder.path());
        let other = folder.path().join("other");
        let private = UnixListener::bind(&other).expect("a socket of the test");
        private.set_nonblocking(true).expect("ours");
        for (channel, socket) in [(MigrationChannel::Main, SOCKET), (MigrationChannel::Memory, AFTER_MAIN)] {
            symlink(&other, folder.path().join(socket)).expect("a link of the test");
            assert!(connect_channel(&launch, channel).expect("nothing is wrong").is_none());
        }
        assert!(private.accept().is_err(), "nobody has connected");
    }

    #[test]
    fn a_channel_is_written_as_it_is_read() {
        for channel in [MigrationChannel::Main, MigrationChannel::Memory] {
            assert_eq!(channel.to_string().parse(), Ok(channel));
        }
        assert!("other".parse::<MigrationChannel>().is_err());
    }
}
