//! What a tilde at the beginning of a line means.

use crate::telnet::TelnetInput;

/// What a user wants who is connected to a console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The domain gets this byte.
    Send(u8),
    Leave,
    TakeWriting,
    Break,
    /// The magic key of Linux: a break, and then the next key is a command.
    AlternateBreak,
    Next,
    Previous,
    Help,
}

/// Ctrl-B.
const CTRL_B: u8 = 2;

/// Reads what a user types.
#[derive(Debug)]
pub(crate) struct EscapeReader {
    at_line_start: bool,
    after_tilde: bool,
}

impl Default for EscapeReader {
    fn default() -> Self {
        EscapeReader { at_line_start: true, after_tilde: false }
    }
}

impl EscapeReader {
    /// Nothing if the byte is part of a command that isn't complete. A tilde that begins no command is sent with the
    /// byte behind it.
    pub(crate) fn read(&mut self, input: TelnetInput) -> Vec<Wish> {
        let TelnetInput::Byte(byte) = input else { return vec![Wish::Break] };
        if !self.after_tilde {
            if self.at_line_start && byte == b'~' {
                self.after_tilde = true;
                return Vec::new();
            }
            self.at_line_start = matches!(byte, b'\r' | b'\n');
            return vec![Wish::Send(byte)];
        }
        self.after_tilde = false;
        // A command leaves the line as empty as it was.
        let command = match byte {
            b'~' => None,
            b'.' => Some(Wish::Leave),
            b'w' => Some(Wish::TakeWriting),
            b'#' => Some(Wish::Break),
            CTRL_B => Some(Wish::AlternateBreak),
            b'n' => Some(Wish::Next),
            b'p' => Some(Wish::Previous),
            b'?' => Some(Wish::Help),
            other => {
                self.at_line_start = matches!(other, b'\r' | b'\n');
                return vec![Wish::Send(b'~'), Wish::Send(other)];
            }
        };
        command.map_or_else(
            || {
                self.at_line_start = false;
                vec![Wish::Send(b'~')]
            },
            |wish| vec![wish],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(typed: &str) -> Vec<Wish> {
        let mut reader = EscapeReader::default();
        typed.bytes().flat_map(|byte| reader.read(TelnetInput::Byte(byte))).collect()
    }

    #[test]
    fn a_tilde_is_a_command_only_at_the_beginning_of_a_line() {
        assert_eq!(wishes("~."), [Wish::Leave]);
        assert_eq!(wishes("a~."), [Wish::Send(b'a'), Wish::Send(b'~'), Wish::Send(b'.')]);
        assert_eq!(wishes("\r~?"), [Wish::Send(b'\r'), Wish::Help]);
        assert_eq!(wishes("~~."), [Wish::Send(b'~'), Wish::Send(b'.')]);
        assert_eq!(wishes("~x"), [Wish::Send(b'~'), Wish::Send(b'x')]);
        assert_eq!(
            wishes("~w~#~n~p~\u{2}"),
            [Wish::TakeWriting, Wish::Break, Wish::Next, Wish::Previous, Wish::AlternateBreak]
        );
        assert_eq!(EscapeReader::default().read(TelnetInput::Break), [Wish::Break]);
    }
}
