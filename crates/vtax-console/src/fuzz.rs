//! What a hostile client may send to a console.

use vtax_fuzz::fuzz;

use crate::{escape::EscapeReader, menu, table::ConsoleGroup, telnet::TelnetReader};

#[test]
fn fuzz_consoles() {
    let seeds = [b"\xff\xfd\x18\xff\xfb\x1fl\r\nnpluto\r\n".to_vec(), b"\r~.\r~w~#~~\xff\xf3".to_vec()];
    fuzz("consoles", &seeds, |bytes| {
        let (mut telnet, mut escapes, mut reply) = (TelnetReader::default(), EscapeReader::default(), Vec::new());
        let group = ConsoleGroup { name: "planets".to_owned(), port: 5002, consoles: Vec::new() };
        let mut wishes = 0;
        for byte in bytes {
            wishes += telnet.read(*byte, &mut reply).map_or(0, |input| escapes.read(input).len());
        }
        assert!(wishes <= 2 * bytes.len() && reply.len() <= 2 * 256 * 3);
        let _ = menu::choice(&String::from_utf8_lossy(bytes), &group);
        Some(())
    });
}
