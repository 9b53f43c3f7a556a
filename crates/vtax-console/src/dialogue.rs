//! State of a session, at the menu or on a console. Parses a client's bytes and produces the responses; performs no
//! I/O.

use std::{sync::Arc, time::Instant};

use vtax_model::topology::Name;

use crate::{
    console::{AllTaken, Hub, READ_ONLY, Sent},
    escape::{self, Escape, Escapes, Pressed},
    line::{Edited, MenuLine},
    menu::{self, MenuChoice},
    outbox::Outbox,
    registry::{GroupMember, GroupView, Registry, Ticket},
    table::{ConsoleId, GroupName},
    telnet::{Decoder, OPENING, Received},
};

/// Byte sequence that Solaris accepts as a break after `kbd -a alternate`.
const ALTERNATE_BREAK: &[u8] = b"\r~\x02";

const CONFIRM: &str = "\nWarning: another session is writing to this console. If you take write access, its current \
                       input is lost.\n\
                       Would you like to continue? [y/n] ";

/// Dialogue with one client.
pub(crate) struct Dialogue {
    ticket: Ticket,
    group: GroupName,
    decoder: Decoder,
    at: At,
    /// Keystrokes for which the guest has no space yet.
    held: Vec<u8>,
}

enum At {
    Menu { line: MenuLine, since: Instant },
    Console(Attached),
    Over,
}

struct Attached {
    id: ConsoleId,
    domain: Name,
    hub: Arc<Hub>,
    escapes: Escapes,
    /// Set if the next key answers the question about taking write access.
    confirms: bool,
    /// Set if the guest doesn't read, so that excess keystrokes are lost immediately.
    ignores_keys: bool,
}

impl Dialogue {
    pub(crate) fn new(ticket: Ticket, group: GroupName) -> Dialogue {
        let at = At::Menu { line: MenuLine::default(), since: Instant::now() };
        Dialogue { ticket, group, decoder: Decoder::new(), at, held: Vec::new() }
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.ticket.outbox
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.ticket.registry
    }

    /// Admits the client.
    pub(crate) fn begin(&mut self) {
        self.outbox().put_own(&OPENING);
        match self.members().as_slice() {
            [] => self.end("\nThe console group no longer exists.\n"),
            [member] if self.connect(member) => {}
            [_] => self.end(""),
            _ => self.show_menu(),
        }
    }

    /// Stops reading, and ends the session when the client has received the remaining output.
    pub(crate) fn end(&mut self, text: &str) {
        self.detach();
        self.at = At::Over;
        self.outbox().say(text);
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.at, At::Over)
    }

    /// Returns the time at which the client came to the menu.
    pub(crate) fn choosing_since(&self) -> Option<Instant> {
        if let At::Menu { since, .. } = &self.at { Some(*since) } else { None }
    }

    /// Returns `true` if the client's keystrokes must wait: for space at the guest, or because the client doesn't read
    /// its output.
    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty() || self.choosing_since().is_some() && !self.outbox().has_space()
    }

    /// Returns the number of keystrokes that wait for space at the guest.
    pub(crate) fn held_keys(&self) -> usize {
        self.held.len()
    }

    /// Notes that the client has read some output, so that the guest may write more.
    pub(crate) fn has_read(&self) {
        if let At::Console(attached) = &self.at {
            attached.hub.has_read();
        }
    }

    /// Returns `true` if this session must make room for others.
    pub(crate) fn is_ended(&self) -> bool {
        self.ticket.is_ended()
    }

    /// Handles a new table: checks that the client's group and console still exist.
    pub(crate) fn look_around(&mut self) {
        let members = self.members();
        if self.is_over() {
            return;
        }
        if members.is_empty() {
            return self.end("\nThe console group no longer exists.\n");
        }
        let At::Console(attached) = &self.at else { return };
        let is_it = |member: &GroupMember| member.hub.as_ref().is_some_and(|hub| Arc::ptr_eq(hub, &attached.hub));
        if !members.iter().any(is_it) {
            self.outbox().say(&format!("\nThe console of {} was removed from this group.\n", attached.domain));
            self.detach();
            self.show_menu();
        }
    }

    /// Handles a guest that had no space for keystrokes within the permitted time. From now on, excess keystrokes are
    /// lost immediately until the guest reads, so that a user who pasted a long text doesn't have to wait for `~.` all
    /// that time.
    pub(crate) fn give_up_keys(&mut self) {
        if let At::Console(attached) = &mut self.at {
            attached.ignores_keys = true;
            self.outbox().say("\n[vtax: keystrokes are lost because the domain does not read them]\n");
            self.send_held();
        }
    }

    /// Handles bytes from the client.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let mut keys = Vec::new();
        for byte in bytes {
            match self.decoder.receive(*byte) {
                Received::Nothing => {}
                Received::Key(key) => self.press(key, &mut keys),
                Received::Break => {
                    self.send(&mut keys);
                    self.send_break();
                }
                Received::Answer(answer) => self.outbox().put_own(&answer),
                Received::AreYouThere => self.outbox().say("\n[vtax: yes]\n"),
                Received::Nonsense => self.end("\nNot a telnet client.\n"),
            }
            if self.is_over() {
                return;
            }
        }
        self.send(&mut keys);
    }

    fn members(&self) -> Vec<GroupMember> {
        self.ticket.registry.group(&self.group).map_or(Vec::new(), |group: GroupView| group.members)
    }

    fn press(&mut self, key: u8, keys: &mut Vec<u8>) {
        match &mut self.at {
            At::Over => {}
            At::Menu { line, .. } => match line.press(key) {
                Edited::Shown(text) => self.outbox().put_own(text.as_bytes()),
                Edited::Ended(line) => self.choose(&line),
            },
            At::Console(attached) if attached.confirms => {
                attached.confirms = false;
                self.confirmed(matches!(key, b'y' | b'Y'));
            }
            At::Console(attached) => match attached.escapes.press(key) {
                Pressed::Undecided => {}
                Pressed::Key(key) => keys.push(key),
                Pressed::KeyAfterTilde(key) => keys.extend([b'~', key]),
                Pressed::Escape(escape) => {
                    self.send(keys);
                    self.obey(escape);
                }
            },
        }
    }

    fn choose(&mut self, line: &str) {
        self.outbox().say("\n");
        let choice = MenuChoice::of(line);
        match &choice {
            MenuChoice::Quit => return self.end(""),
            MenuChoice::Nothing => {}
            MenuChoice::Help => self.outbox().say(menu::HELP),
            MenuChoice::List => self.list(),
            MenuChoice::Unknown => self.outbox().say("Invalid choice; h shows help.\n"),
            MenuChoice::Id(_) | MenuChoice::Name(_) => {
                match self.members().iter().find(|member| is_chosen(&choice, member)) {
                    Some(member) if self.connect(member) => return,
                    Some(_) => {}
                    None => self.outbox().say("The group has no such console; l lists all of them.\n"),
                }
            }
        }
        self.show_menu();
    }

    fn list(&self) {
        let members = self.members();
        let row = |member: &GroupMember| {
            let online = member.hub.as_ref().is_some_and(|hub| hub.is_online());
            (member.console.id, member.console.domain.to_string(), online)
        };
        self.outbox().say(&menu::list(members.iter().map(row)));
    }

    fn show_menu(&mut self) {
        let since = Instant::now();
        self.ticket.set_choosing(Some(since));
        self.at = At::Menu { line: MenuLine::default(), since };
        self.outbox().say(&menu::prompt(&self.ticket.registry.host, &self.group));
    }

    /// Attaches the client to a console. Returns `true` if that succeeded.
    fn connect(&mut self, member: &GroupMember) -> bool {
        let (domain, group) = (&member.console.domain, &self.group.name);
        let greeting =
            format!("Connecting to console \"{domain}\" in group \"{group}\" ....\nPress ~? for control options ..\n");
        let Some(hub) = &member.hub else {
            self.outbox().say("The console is currently unavailable.\n");
            return false;
        };
        if let Err(AllTaken(sessions)) = hub.attach(self.ticket.id, &self.ticket.outbox, &greeting) {
            self.outbox().say(&format!("The console of {domain} has {sessions} sessions, the maximum.\n"));
            return false;
        }
        self.ticket.set_choosing(None);
        self.at = At::Console(Attached {
            id: member.console.id,
            domain: domain.clone(),
            hub: Arc::clone(hub),
            escapes: Escapes::new(),
            confirms: false,
            ignores_keys: false,
        });
        true
    }

    fn obey(&mut self, escape: Escape) {
        match escape {
            Escape::Leave => self.leave(),
            Escape::TakeWriting => self.ask_for_writing(),
            Escape::Break => self.send_break(),
            Escape::AlternateBreak => self.send(&mut ALTERNATE_BREAK.to_vec()),
            Escape::Next => self.go(|place, count| (place + 1) % count),
            Escape::Previous => self.go(|place, count| (place + count - 1) % count),
            Escape::Help => self.outbox().say(escape::HELP),
        }
    }

    /// Returns to the menu; a group with one console has none.
    fn leave(&mut self) {
        self.detach();
        if self.members().len() > 1 { self.show_menu() } else { self.end("\n") }
    }

    fn ask_for_writing(&mut self) {
        let At::Console(attached) = &mut self.at else { return };
        attached.confirms = !attached.hub.is_writer(self.ticket.id);
        let text = if attached.confirms { CONFIRM } else { "\nYou already have write access.\n" };
        self.outbox().say(text);
    }

    fn confirmed(&mut self, yes: bool) {
        self.outbox().say(if yes { "y\n" } else { "n\n" });
        if let (true, At::Console(attached)) = (yes, &self.at) {
            attached.hub.take_writing(self.ticket.id);
        }
    }

    fn send_break(&mut self) {
        let At::Console(attached) = &self.at else { return };
        if !attached.hub.is_writer(self.ticket.id) {
            self.outbox().say(READ_ONLY);
        } else if let Err(why) = self.ticket.registry.attendant.send_break(&attached.domain) {
            self.outbox().say(&format!("\n[vtax: no break was sent: {why}]\n"));
        }
    }

    /// Switches to another console of the group, by its position.
    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        let At::Console(attached) = &self.at else { return };
        let members = self.members();
        let Some(place) = members.iter().position(|member| member.console.id == attached.id) else { return };
        let next = to(place, members.len());
        if next == place {
            return self.outbox().say("\nThe group has no other console.\n");
        }
        self.detach();
        self.outbox().say("\n");
        if !self.connect(&members[next]) {
            self.show_menu();
        }
    }

    fn detach(&mut self) {
        self.held.clear();
        if let At::Console(attached) = &self.at {
            attached.hub.detach(self.ticket.id);
        }
    }

    /// Sends keystrokes to the guest, after those already waiting, and leaves none.
    fn send(&mut self, keys: &mut Vec<u8>) {
        self.held.append(keys);
        self.send_held();
    }

    /// Sends keystrokes that wait for space at the guest.
    pub(crate) fn send_held(&mut self) {
        let At::Console(attached) = &mut self.at else { return self.held.clear() };
        if self.held.is_empty() {
            return;
        }
        match attached.hub.send(self.ticket.id, &self.held) {
            Sent::Taken(count) => {
                self.held.drain(..count);
                attached.ignores_keys &= count == 0;
                if attached.ignores_keys {
                    self.held.clear();
                }
            }
            Sent::ReadOnly => {
                attached.escapes.restart();
                self.held.clear();
                self.outbox().say(READ_ONLY);
            }
        }
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        self.detach();
    }
}

fn is_chosen(choice: &MenuChoice, member: &GroupMember) -> bool {
    match choice {
        MenuChoice::Id(id) => member.console.id == *id,
        MenuChoice::Name(name) => member.console.domain.as_str() == name,
        _ => false,
    }
}
