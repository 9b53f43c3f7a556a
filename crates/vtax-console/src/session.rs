//! One user who is connected to a group of consoles.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use crate::{
    escape::{EscapeReader, Wish},
    hub::{ConsoleHub, Typed},
    menu::{self, LONGEST_LINE, MenuChoice},
    outbox::Outbox,
    server::SharedConsoles,
    table::{Console, ConsoleGroup},
    telnet::{GREETING, TelnetInput, TelnetReader, escaped},
};

/// A client takes what is sent within this time, or its session ends.
const SEND: Duration = Duration::from_secs(30);
const WARNING: &str = "\r\nWarning: another session may be writing at this console. It will lose its write access.\r\n\
                       Would you like to continue? [y/n] ";
const NO_ACCESS: &[u8] = b"\r\nYou do not have write access\r\n";
const BACKSPACE: [u8; 2] = [8, 127];

/// A connection, and what is waiting to be sent to it.
struct ConsoleSession {
    stream: TcpStream,
    telnet: TelnetReader,
    outbox: Arc<Outbox>,
    shared: Arc<SharedConsoles>,
    group: String,
    /// What was received and not yet read.
    received: VecDeque<u8>,
}

/// How a stay at a console ended.
enum Left {
    ToMenu,
    To(Console),
    Gone,
}

/// Serves a client until it goes, or says nothing for too long.
pub(crate) fn serve(stream: TcpStream, group: &str, shared: Arc<SharedConsoles>) -> io::Result<()> {
    stream.set_read_timeout(shared.options.idle)?;
    stream.set_write_timeout(Some(SEND))?;
    // A key is sent as it is typed.
    stream.set_nodelay(true)?;
    let outbox = Arc::new(Outbox::default());
    let sender = send(stream.try_clone()?, Arc::clone(&outbox))?;
    let mut session = ConsoleSession {
        stream,
        telnet: TelnetReader::default(),
        outbox,
        shared,
        group: group.to_owned(),
        received: VecDeque::new(),
    };
    session.shared_greeting();
    session.run();
    session.outbox.close();
    let _ = sender.join();
    let _ = session.stream.shutdown(Shutdown::Both);
    Ok(())
}

/// The thread that sends, so that a client that doesn't read keeps nobody waiting.
fn send(mut stream: TcpStream, outbox: Arc<Outbox>) -> io::Result<thread::JoinHandle<()>> {
    let work = move || {
        while let Some(bytes) = outbox.take() {
            if stream.write_all(&escaped(&bytes)).is_err() {
                // The thread that receives notices it.
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    };
    thread::Builder::new().name("console-send".to_owned()).spawn(work)
}

impl ConsoleSession {
    /// Commands of the protocol must not be escaped, and nothing else is being sent yet.
    fn shared_greeting(&mut self) {
        let _ = self.stream.write_all(&GREETING);
    }

    fn run(&mut self) {
        let mut next = None;
        loop {
            // It may have changed while somebody was at a console.
            let Some(group) = self.shared.group(&self.group) else { return };
            let console = match (next.take(), group.consoles.as_slice()) {
                (Some(console), _) => Some(console),
                (None, [only]) => Some(only.clone()),
                (None, _) => self.choose(&group),
            };
            let Some(console) = console else { return };
            match self.stay(&console, &group) {
                Left::To(console) => next = Some(console),
                Left::ToMenu if group.consoles.len() > 1 => {}
                Left::ToMenu | Left::Gone => return,
            }
        }
    }

    /// Asks until a console is chosen. None if the user goes.
    fn choose(&mut self, group: &ConsoleGroup) -> Option<Console> {
        loop {
            self.say("\r\n");
            self.say(&menu::prompt(&self.shared.options.host, &group.name));
            let line = self.line()?;
            match menu::choice(&line, group) {
                MenuChoice::Help => self.say(menu::HELP),
                MenuChoice::List => self.say(&menu::list(group)),
                MenuChoice::Connect(console) => return Some(console),
                MenuChoice::Quit => return None,
                MenuChoice::Unknown(why) => self.say(&format!("{why}\r\n")),
                MenuChoice::Nothing => {}
            }
        }
    }

    /// Is at a console until the user leaves it.
    fn stay(&mut self, console: &Console, group: &ConsoleGroup) -> Left {
        let Some(hub) = self.shared.hub(console) else {
            self.say("\r\nThis console can't be opened.\r\n");
            return Left::ToMenu;
        };
        self.say(&menu::connecting(&console.domain, &group.name));
        let Some(number) = hub.join(&self.outbox) else {
            self.say("\r\nToo many sessions are at this console.\r\n");
            return Left::ToMenu;
        };
        if !hub.is_writer(number) {
            self.say("You can only read: another session has write access.\r\n");
        }
        let left = self.at_console(&hub, number, console, group);
        hub.leave(number);
        left
    }

    fn at_console(&mut self, hub: &ConsoleHub, number: u64, console: &Console, group: &ConsoleGroup) -> Left {
        let mut escapes = EscapeReader::default();
        while let Some(input) = self.input() {
            for wish in escapes.read(input) {
                match wish {
                    Wish::Send(byte) => match hub.type_byte(number, byte) {
                        Typed::Sent => {}
                        Typed::NoWriteAccess => self.outbox.push(NO_ACCESS),
                        Typed::NoDomain => self.say("\r\nThe domain doesn't take what is typed.\r\n"),
                    },
                    Wish::Leave => return Left::ToMenu,
                    Wish::TakeWriting => match self.agrees() {
                        Some(true) => hub.take_writing(number),
                        Some(false) => {}
                        None => return Left::Gone,
                    },
                    Wish::Break | Wish::AlternateBreak if hub.is_writer(number) => {
                        (self.shared.options.send_break)(&console.domain);
                    }
                    Wish::Break | Wish::AlternateBreak => self.outbox.push(NO_ACCESS),
                    Wish::Next | Wish::Previous => {
                        if let Some(other) = neighbour(group, console, wish == Wish::Next) {
                            return Left::To(other);
                        }
                    }
                    Wish::Help => self.say(menu::CONTROL_OPTIONS),
                }
            }
        }
        Left::Gone
    }

    /// None if the user has gone.
    fn agrees(&mut self) -> Option<bool> {
        self.say(WARNING);
        let input = self.input()?;
        self.say("\r\n");
        Some(matches!(input, TelnetInput::Byte(b'y' | b'Y')))
    }

    /// A line that is typed, as the user sees it. None if the user has gone.
    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match self.input()? {
                TelnetInput::Byte(b'\r' | b'\n') => {
                    self.say("\r\n");
                    return Some(String::from_utf8_lossy(&line).into_owned());
                }
                TelnetInput::Byte(byte) if BACKSPACE.contains(&byte) && line.pop().is_some() => {
                    self.say("\u{8} \u{8}");
                }
                TelnetInput::Byte(byte @ b' '..=b'~') if line.len() < LONGEST_LINE => {
                    line.push(byte);
                    self.outbox.push(&[byte]);
                }
                _ => {}
            }
        }
    }

    /// The next thing that the client has sent. None if it has gone, or has said nothing for too long.
    fn input(&mut self) -> Option<TelnetInput> {
        loop {
            let mut reply = Vec::new();
            while let Some(byte) = self.received.pop_front() {
                let input = self.telnet.read(byte, &mut reply);
                self.reply(&mut reply);
                if input.is_some() {
                    return input;
                }
            }
            let mut buffer = [0; 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(length) => self.received.extend(&buffer[..length]),
            }
        }
    }

    /// Answers of the protocol go beside what waits: they are few and short.
    fn reply(&mut self, reply: &mut Vec<u8>) {
        if !reply.is_empty() {
            let _ = self.stream.write_all(reply);
            reply.clear();
        }
    }

    fn say(&self, text: &str) {
        self.outbox.push(text.as_bytes());
    }
}

/// The console before or behind this one; none if it is the only one.
fn neighbour(group: &ConsoleGroup, console: &Console, next: bool) -> Option<Console> {
    let count = group.consoles.len();
    let place = group.consoles.iter().position(|other| other.id == console.id)?;
    let step = if next { 1 } else { count - 1 };
    (count > 1).then(|| group.consoles[(place + step) % count].clone())
}
