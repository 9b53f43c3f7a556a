//! Server side of telnet with a client that sends each key as it is pressed (RFC 854, 855, 857, 858).

/// Maximum length of a sub-negotiation to skip, longer than any that clients send unrequested.
pub(crate) const SUBNEGOTIATION_MOST: u16 = 1024;

const IAC: u8 = 255;
const DONT: u8 = 254;
const DO: u8 = 253;
const WONT: u8 = 252;
const WILL: u8 = 251;
const SUBNEGOTIATION: u8 = 250;
const ERASE_LINE: u8 = 248;
const ERASE_CHARACTER: u8 = 247;
const ARE_YOU_THERE: u8 = 246;
const INTERRUPT: u8 = 244;
const BREAK: u8 = 243;
const END_OF_SUBNEGOTIATION: u8 = 240;

/// Telnet options; without these two, a client would send whole lines and echo them locally.
const ECHO: u8 = 1;
const SUPPRESS_GO_AHEAD: u8 = 3;

/// The server's first requests: it echoes what is typed, and each key is sent immediately.
pub(crate) const OPENING: [u8; 9] = [IAC, WILL, ECHO, IAC, WILL, SUPPRESS_GO_AHEAD, IAC, DO, SUPPRESS_GO_AHEAD];

/// Meaning of a client's byte, together with those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// More bytes must follow, or the byte has no effect.
    Nothing,
    /// Keystroke. The end of a line is always a carriage return.
    Key(u8),
    /// The line's break signal.
    Break,
    /// Bytes to send back to the client.
    Answer([u8; 3]),
    /// The client asks whether the server is still there.
    AreYouThere,
    /// Not the input of a telnet client.
    Nonsense,
}

/// Decoder of a client's bytes.
#[derive(Debug)]
pub(crate) struct Decoder {
    expects: Expects,
    after_return: bool,
    echo: Setting,
    own_go_ahead: Setting,
    their_go_ahead: Setting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    Key,
    Command,
    Option(u8),
    Subnegotiation { left: u16, after_iac: bool },
}

/// Option of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// Requested by this server, so the next message about it is the answer.
    Asked,
    On,
    Off,
}

impl Decoder {
    /// Returns the decoder for a client that was sent the [`OPENING`].
    pub(crate) fn new() -> Decoder {
        Decoder {
            expects: Expects::Key,
            after_return: false,
            echo: Setting::Asked,
            own_go_ahead: Setting::Asked,
            their_go_ahead: Setting::Asked,
        }
    }

    pub(crate) fn receive(&mut self, byte: u8) -> Received {
        match self.expects {
            Expects::Key if byte == IAC => self.expect(Expects::Command),
            Expects::Key => self.key(byte),
            Expects::Command => self.command(byte),
            Expects::Option(command) => {
                self.expects = Expects::Key;
                self.negotiate(command, byte)
            }
            Expects::Subnegotiation { left, after_iac } => self.skip(byte, left, after_iac),
        }
    }

    fn expect(&mut self, expects: Expects) -> Received {
        self.expects = expects;
        Received::Nothing
    }

    /// Returns a key. The Enter key arrives as CR NUL or as CR LF.
    fn key(&mut self, byte: u8) -> Received {
        let ends_return = self.after_return && matches!(byte, 0 | b'\n');
        self.after_return = byte == b'\r';
        if ends_return { Received::Nothing } else { Received::Key(byte) }
    }

    fn command(&mut self, command: u8) -> Received {
        self.expects = Expects::Key;
        match command {
            IAC => self.key(IAC),
            WILL | WONT | DO | DONT => self.expect(Expects::Option(command)),
            SUBNEGOTIATION => self.expect(Expects::Subnegotiation { left: SUBNEGOTIATION_MOST, after_iac: false }),
            BREAK => Received::Break,
            // These requests are for the guest, so they are passed on as the corresponding keys.
            INTERRUPT => self.key(0x03),
            ERASE_CHARACTER => self.key(0x7f),
            ERASE_LINE => self.key(0x15),
            ARE_YOU_THERE => Received::AreYouThere,
            _ => Received::Nothing,
        }
    }

    fn skip(&mut self, byte: u8, left: u16, after_iac: bool) -> Received {
        match (after_iac, byte, left) {
            (true, END_OF_SUBNEGOTIATION, _) => self.expect(Expects::Key),
            (_, _, 0) => Received::Nonsense,
            _ => self.expect(Expects::Subnegotiation { left: left - 1, after_iac: !after_iac && byte == IAC }),
        }
    }

    /// Answers a request. Only a change is answered; otherwise the two sides could answer each other forever.
    fn negotiate(&mut self, command: u8, option: u8) -> Received {
        let setting = match (command, option) {
            (DO | DONT, ECHO) => &mut self.echo,
            (DO | DONT, SUPPRESS_GO_AHEAD) => &mut self.own_go_ahead,
            (WILL | WONT, SUPPRESS_GO_AHEAD) => &mut self.their_go_ahead,
            (DO, _) => return Received::Answer([IAC, WONT, option]),
            (WILL, _) => return Received::Answer([IAC, DONT, option]),
            _ => return Received::Nothing,
        };
        let (wanted, answer) = match command {
            DO => (Setting::On, WILL),
            DONT => (Setting::Off, WONT),
            WILL => (Setting::On, DO),
            _ => (Setting::Off, DONT),
        };
        let before = std::mem::replace(setting, wanted);
        let changed = before != Setting::Asked && before != wanted;
        if changed { Received::Answer([IAC, answer, option]) } else { Received::Nothing }
    }
}

/// Encodes a guest's text for telnet.
pub(crate) fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(bytes.len() + 16);
    for part in bytes.split_inclusive(|byte| *byte == IAC) {
        encoded.extend_from_slice(part);
        if part.last() == Some(&IAC) {
            encoded.push(IAC);
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn received(bytes: &[u8]) -> Vec<Received> {
        let mut decoder = Decoder::new();
        bytes.iter().map(|byte| decoder.receive(*byte)).filter(|received| *received != Received::Nothing).collect()
    }

    fn keys(bytes: &[u8]) -> Vec<u8> {
        let key = |received| if let Received::Key(key) = received { Some(key) } else { None };
        received(bytes).into_iter().filter_map(key).collect()
    }

    #[test]
    fn a_clients_agreement_is_not_answered() {
        let agreed = [IAC, DO, ECHO, IAC, DO, SUPPRESS_GO_AHEAD, IAC, WILL, SUPPRESS_GO_AHEAD];
        assert_eq!(received(&agreed), []);
        assert_eq!(received(&[IAC, DONT, ECHO, IAC, WONT, SUPPRESS_GO_AHEAD]), []);
    }

    #[test]
    fn a_change_is_answered_once() {
        let off = [IAC, DO, ECHO, IAC, DONT, ECHO, IAC, DONT, ECHO];
        assert_eq!(received(&off), [Received::Answer([IAC, WONT, ECHO])]);
        let off_and_on = [IAC, DONT, ECHO, IAC, DO, ECHO, IAC, DO, ECHO];
        assert_eq!(received(&off_and_on), [Received::Answer([IAC, WILL, ECHO])]);
    }

    #[test]
    fn options_that_the_server_lacks_are_refused() {
        const WINDOW_SIZE: u8 = 31;
        assert_eq!(received(&[IAC, WILL, WINDOW_SIZE]), [Received::Answer([IAC, DONT, WINDOW_SIZE])]);
        assert_eq!(received(&[IAC, DO, WINDOW_SIZE]), [Received::Answer([IAC, WONT, WINDOW_SIZE])]);
        assert_eq!(received(&[IAC, WONT, WINDOW_SIZE, IAC, DONT, WINDOW_SIZE]), []);
    }

    #[test]
    fn enter_is_one_key() {
        assert_eq!(keys(b"a\r\0b\r\nc\rd\n\n"), b"a\rb\rc\rd\n\n");
    }

    #[test]
    fn commands_are_not_keys_and_a_doubled_iac_is_one() {
        assert_eq!(received(&[IAC, BREAK, IAC, ARE_YOU_THERE]), [Received::Break, Received::AreYouThere]);
        assert_eq!(keys(&[b'a', IAC, IAC, IAC, 241, b'b', IAC, INTERRUPT]), [b'a', IAC, b'b', 3]);
    }

    #[test]
    fn a_subnegotiation_is_skipped_and_has_a_bound() {
        let inside = [&[IAC, SUBNEGOTIATION, 24][..], b"xterm", &[IAC, IAC, IAC, END_OF_SUBNEGOTIATION, b'x']].concat();
        assert_eq!(received(&inside), [Received::Key(b'x')]);
        let endless = [vec![IAC, SUBNEGOTIATION], vec![b'x'; usize::from(SUBNEGOTIATION_MOST) + 1]].concat();
        assert_eq!(received(&endless), [Received::Nonsense]);
    }

    proptest! {
        #[test]
        fn any_keys_come_as_they_were_sent(bytes in any::<Vec<u8>>()) {
            let sent: Vec<u8> = bytes.iter().copied().filter(|byte| !matches!(byte, 0 | b'\r' | b'\n')).collect();
            prop_assert_eq!(keys(&encode(&sent)), sent);
        }

        #[test]
        fn text_grows_by_one_byte_for_each_iac(bytes in any::<Vec<u8>>()) {
            let iacs = bytes.iter().filter(|byte| **byte == IAC).count();
            prop_assert_eq!(encode(&bytes).len(), bytes.len() + iacs);
        }
    }
}
