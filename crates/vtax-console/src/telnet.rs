//! What of the telnet protocol (RFC 854, 855) a console needs: commands are taken out of what a client sends, options are
//! refused but for two, and a break is heard.

/// "Interpret as command".
const IAC: u8 = 255;
const DONT: u8 = 254;
const DO: u8 = 253;
const WONT: u8 = 252;
const WILL: u8 = 251;
/// The beginning and the end of a subnegotiation.
const SB: u8 = 250;
const SE: u8 = 240;
const BREAK: u8 = 243;
const ECHO: u8 = 1;
const SUPPRESS_GO_AHEAD: u8 = 3;

/// The first bytes to a client: the server echoes, and sends byte by byte. So the client shows nothing by itself, and
/// sends each key at once.
pub(crate) const GREETING: [u8; 6] = [IAC, WILL, ECHO, IAC, WILL, SUPPRESS_GO_AHEAD];

/// What a client has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TelnetInput {
    Byte(u8),
    Break,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TelnetState {
    #[default]
    Data,
    /// After a carriage return, which clients send as CR LF or CR NUL.
    Return,
    Command,
    Option(u8),
    Sub,
    SubCommand,
}

/// Reads what a client sends, however it is cut into pieces. It keeps no bytes, so nobody can fill it.
#[derive(Debug, Default)]
pub(crate) struct TelnetReader {
    state: TelnetState,
    /// The options that were refused, each once: two that answer each other's refusals would never end.
    refused: [u64; 4],
    refused_offers: [u64; 4],
}

impl TelnetReader {
    /// What one byte means; bytes of an answer are appended to `reply`.
    pub(crate) fn read(&mut self, byte: u8, reply: &mut Vec<u8>) -> Option<TelnetInput> {
        let (next, input) = match (self.state, byte) {
            (TelnetState::Data | TelnetState::Return, IAC) => (TelnetState::Command, None),
            (TelnetState::Return, b'\n' | 0) => (TelnetState::Data, None),
            (TelnetState::Data | TelnetState::Return, b'\r') => (TelnetState::Return, Some(TelnetInput::Byte(b'\r'))),
            (TelnetState::Data | TelnetState::Return, byte) => (TelnetState::Data, Some(TelnetInput::Byte(byte))),
            (TelnetState::Command, IAC) => (TelnetState::Data, Some(TelnetInput::Byte(IAC))),
            (TelnetState::Command, BREAK) => (TelnetState::Data, Some(TelnetInput::Break)),
            (TelnetState::Command, SB) => (TelnetState::Sub, None),
            (TelnetState::Command, WILL | WONT | DO | DONT) => (TelnetState::Option(byte), None),
            (TelnetState::Command, _) => (TelnetState::Data, None),
            (TelnetState::Option(command), option) => {
                self.answer(command, option, reply);
                (TelnetState::Data, None)
            }
            (TelnetState::Sub, IAC) => (TelnetState::SubCommand, None),
            (TelnetState::Sub, _) => (TelnetState::Sub, None),
            (TelnetState::SubCommand, SE) => (TelnetState::Data, None),
            (TelnetState::SubCommand, _) => (TelnetState::Sub, None),
        };
        self.state = next;
        input
    }

    fn answer(&mut self, command: u8, option: u8, reply: &mut Vec<u8>) {
        match command {
            DO if option != ECHO && option != SUPPRESS_GO_AHEAD && is_new(&mut self.refused, option) => {
                reply.extend([IAC, WONT, option]);
            }
            WILL if is_new(&mut self.refused_offers, option) => reply.extend([IAC, DONT, option]),
            _ => {}
        }
    }
}

fn is_new(seen: &mut [u64; 4], option: u8) -> bool {
    let (word, bit) = (usize::from(option / 64), 1 << (option % 64));
    let is_new = seen[word] & bit == 0;
    seen[word] |= bit;
    is_new
}

/// Text as a client has to get it: a byte that would be a command is doubled.
pub(crate) fn escaped(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| std::iter::repeat_n(*byte, if *byte == IAC { 2 } else { 1 })).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> (Vec<TelnetInput>, Vec<u8>) {
        let (mut reader, mut reply) = (TelnetReader::default(), Vec::new());
        let input = bytes.iter().filter_map(|byte| reader.read(*byte, &mut reply)).collect();
        (input, reply)
    }

    #[test]
    fn commands_are_taken_out_and_options_refused_once() {
        let (input, reply) = read(&[b'a', IAC, DO, 24, IAC, DO, 24, IAC, WILL, 31, IAC, DO, ECHO, b'b']);
        assert_eq!(input, [TelnetInput::Byte(b'a'), TelnetInput::Byte(b'b')]);
        assert_eq!(reply, [IAC, WONT, 24, IAC, DONT, 31]);
        let (input, reply) = read(&[IAC, SB, 24, 0, IAC, IAC, b'x', IAC, SE, IAC, BREAK, IAC, IAC]);
        assert_eq!((input, reply), (vec![TelnetInput::Break, TelnetInput::Byte(IAC)], Vec::new()));
    }

    #[test]
    fn a_return_is_one_byte_however_a_client_writes_it() {
        for text in [b"l\r\n".as_slice(), b"l\r\0", b"l\r"] {
            assert_eq!(read(text).0, [TelnetInput::Byte(b'l'), TelnetInput::Byte(b'\r')]);
        }
    }

    proptest! {
        #[test]
        fn what_is_escaped_is_read_back(bytes in prop::collection::vec(any::<u8>().prop_filter("no return", |byte| *byte != b'\r'), 0..64)) {
            let (input, reply) = read(&escaped(&bytes));
            prop_assert_eq!(input, bytes.into_iter().map(TelnetInput::Byte).collect::<Vec<_>>());
            prop_assert!(reply.is_empty());
        }

        #[test]
        fn answers_are_bounded(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            prop_assert!(read(&bytes).1.len() <= 2 * 256 * 3);
        }
    }
}
