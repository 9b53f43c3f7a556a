//! Fuzzing of clients' input, and of the interpretation of their keystrokes.

use std::{net::Ipv4Addr, sync::Arc};

use rand::{RngExt as _, SeedableRng as _};
use vtax_model::{foreign::ForeignText, topology::Name};

use crate::{
    bounds::Bounds,
    dialogue::Dialogue,
    escape::{Escape, Escapes, Pressed},
    event::{Attendant, ServerEvent},
    line::{Edited, LENGTH_MOST, MenuLine},
    menu::MenuChoice,
    outbox::OWN_MOST,
    registry::Registry,
    table::{Console, ConsoleAccess, ConsoleGroup, ConsoleId, ConsoleTable, GroupName},
    telnet::{Decoder, Received},
};

const SEEDS: [&[u8]; 6] = [
    b"\xff\xfd\x01\xff\xfd\x03\xff\xfb\x03h\r\0l\r\0npluto\r\0",
    b"\xff\xfb\x18\xff\xfa\x18\x00XTERM\xff\xf0c2\r\n",
    b"root\r~~\r~w~#~\x02~n~p~?\r~.",
    b"\xff\xf3\xff\xf4\xff\xf6\xff\xf7\xff\xf8\xff\xff",
    b"ab\x7f\x08\x15q\r",
    b"\xff\xfe\x01\xff\xfd\x01\xff\xfc\x03\xff\xfb\x03x",
];

/// Interprets every key of a client both at a menu and on a console: which of them it is for depends on the server.
fn read(bytes: &[u8]) -> Option<()> {
    let (mut decoder, mut escapes, mut line) = (Decoder::new(), Escapes::new(), MenuLine::default());
    let (mut keys, mut sent, mut answered) = (0, 0, 0);
    for byte in bytes {
        match decoder.receive(*byte) {
            Received::Key(key) => {
                keys += 1;
                if let Edited::Ended(line) = line.press(key) {
                    assert!(line.len() <= LENGTH_MOST);
                    let _ = MenuChoice::of(&line);
                }
                sent += match escapes.press(key) {
                    Pressed::Key(_) => 1,
                    Pressed::KeyAfterTilde(_) => 2,
                    Pressed::Escape(Escape::AlternateBreak) => 3,
                    Pressed::Undecided | Pressed::Escape(_) => 0,
                };
            }
            Received::Answer(answer) => answered += answer.len(),
            Received::Nonsense => break,
            Received::Nothing | Received::Break | Received::AreYouThere => {}
        }
    }
    // A guest gets at most the two keys that the alternate break becomes, and a client no more bytes than it sends.
    assert!(sent <= 2 * keys && answered <= bytes.len());
    (keys + answered > 0).then_some(())
}

/// Server without threads for clients, with two consoles of guests that never exist.
struct Hall {
    registry: Arc<Registry>,
    group: GroupName,
}

impl Hall {
    fn new() -> Hall {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let console = |(domain, id): (&str, u32)| Console {
            id: ConsoleId(id),
            domain: name(domain),
            serial: "/nonexistent/serial".into(),
            log: None,
        };
        let group = GroupName { service: name("console"), name: name("planets") };
        let consoles = [("jupiter", 2), ("pluto", 3)].map(console).to_vec();
        let groups = vec![ConsoleGroup { name: group.clone(), port: 1, access: ConsoleAccess::Everybody, consoles }];
        let registry = Registry::new("sun".into(), Bounds::default(), Arc::new(Nobody)).expect("an eventfd");
        registry.replace(ConsoleTable::new(groups).expect("no clash"));
        Hall { registry: Arc::new(registry), group }
    }

    /// Runs complete sessions, as many as the bytes provide. Nobody reads the output, so it must be bounded.
    fn receive(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let peer = (Ipv4Addr::LOCALHOST, 1).into();
            let ticket = self.registry.admit(peer, None).expect("an eventfd").expect("there is room");
            let mut dialogue = Dialogue::new(ticket, self.group.clone());
            dialogue.begin();
            while let ([byte, behind @ ..], false) = (rest, dialogue.is_over()) {
                dialogue.receive(&[*byte]);
                rest = behind;
            }
            dialogue.look_around();
            assert!(dialogue.outbox().len() <= self.registry.bounds.output + OWN_MOST);
        }
    }
}

struct Nobody;

impl Attendant for Nobody {
    fn send_break(&self, _: &Name) -> Result<(), ForeignText> {
        Ok(())
    }

    fn hear(&self, _: &ServerEvent) {}
}

#[test]
fn fuzz_console_clients() {
    let hall = Hall::new();
    vtax_fuzz::fuzz("console-clients", &SEEDS, move |bytes| {
        hall.receive(bytes);
        read(bytes)
    });
}

/// Inputs composed of sequences with a meaning in telnet, escapes and the menu, so that most of it is interpreted.
#[test]
fn ten_million_hostile_bytes_are_read() {
    const WORDS: [&[u8]; 18] = [
        b"\xff",
        b"\xfa",
        b"\xf0",
        b"\xfb",
        b"\xfc",
        b"\xfd",
        b"\xfe",
        b"\xf3",
        b"\x01",
        b"\x03",
        b"~",
        b"\r",
        b"\n",
        b"\0",
        b"n",
        b"c4294967296",
        b"\rnpluto\r",
        b"\r~w",
    ];
    let (hall, mut random) = (Hall::new(), rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(854));
    let mut bytes = 0;
    while bytes < 10_000_000 {
        let mut input = Vec::new();
        for _ in 0..random.random_range(1..5000) {
            match random.random_bool(0.7) {
                true => input.extend_from_slice(WORDS[random.random_range(0..WORDS.len())]),
                false => input.push(random.random()),
            }
        }
        hall.receive(&input);
        bytes += input.len();
    }
}
