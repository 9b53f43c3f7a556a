//! Escape sequences that control the server, while all other keystrokes go to a console: `~` at the beginning of a
//! line, followed by another key.

/// Meaning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// The next key decides.
    Undecided,
    /// The key goes to the guest.
    Key(u8),
    /// The preceding tilde was not an escape, so both go to the guest.
    KeyAfterTilde(u8),
    Escape(Escape),
}

/// Command to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escape {
    Leave,
    TakeWriting,
    Break,
    AlternateBreak,
    Next,
    Previous,
    Help,
}

impl Escape {
    const CTRL_B: u8 = 0x02;

    fn of(key: u8) -> Option<Escape> {
        match key {
            b'.' => Some(Escape::Leave),
            b'w' => Some(Escape::TakeWriting),
            b'#' => Some(Escape::Break),
            Escape::CTRL_B => Some(Escape::AlternateBreak),
            b'n' => Some(Escape::Next),
            b'p' => Some(Escape::Previous),
            b'?' => Some(Escape::Help),
            _ => None,
        }
    }
}

/// Text printed by `~?`.
pub(crate) const HELP: &str = "
  ~~   send one ~ to the domain
  ~.   leave this console
  ~w   take write access from the session that has it
  ~#   send a break
  ~^B  send the alternate break (Ctrl-B after the ~)
  ~n   go to the next console of the group
  ~p   go to the previous console of the group
  ~?   show this help
The ~ must be the first key of a line.
";

/// Finds escape sequences among a session's keystrokes.
#[derive(Debug)]
pub(crate) struct Escapes {
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    LineStart,
    Tilde,
    Within,
}

impl Escapes {
    /// Returns the state of a new session, which is at the beginning of a line.
    pub(crate) fn new() -> Escapes {
        Escapes { at: At::LineStart }
    }

    pub(crate) fn press(&mut self, key: u8) -> Pressed {
        let after = if matches!(key, b'\r' | b'\n') { At::LineStart } else { At::Within };
        let before = std::mem::replace(&mut self.at, after);
        match (before, key) {
            (At::LineStart, b'~') => {
                self.at = At::Tilde;
                Pressed::Undecided
            }
            (At::Tilde, b'~') => Pressed::Key(b'~'),
            (At::Tilde, key) => match Escape::of(key) {
                Some(escape) => {
                    self.at = At::LineStart;
                    Pressed::Escape(escape)
                }
                None => Pressed::KeyAfterTilde(key),
            },
            _ => Pressed::Key(key),
        }
    }

    /// Notes that the keystrokes were discarded, so that the next key still begins a line.
    pub(crate) fn restart(&mut self) {
        if self.at == At::Within {
            self.at = At::LineStart;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes for the guest, and the escapes.
    fn pressed(keys: &[u8]) -> (Vec<u8>, Vec<Escape>) {
        let (mut sent, mut found, mut escapes) = (Vec::new(), Vec::new(), Escapes::new());
        for key in keys {
            match escapes.press(*key) {
                Pressed::Undecided => {}
                Pressed::Key(key) => sent.push(key),
                Pressed::KeyAfterTilde(key) => sent.extend([b'~', key]),
                Pressed::Escape(escape) => found.push(escape),
            }
        }
        (sent, found)
    }

    #[test]
    fn a_tilde_is_an_escape_only_at_the_beginning_of_a_line() {
        assert_eq!(pressed(b"~."), (vec![], vec![Escape::Leave]));
        assert_eq!(pressed(b"ls ~.\r~#"), (b"ls ~.\r".to_vec(), vec![Escape::Break]));
        assert_eq!(pressed(b"\n~w~n~p~?~\x02"), {
            use Escape::*;
            (b"\n".to_vec(), vec![TakeWriting, Next, Previous, Help, AlternateBreak])
        });
    }

    #[test]
    fn two_tildes_are_one_and_other_keys_are_sent() {
        assert_eq!(pressed(b"~~."), (b"~.".to_vec(), vec![]));
        assert_eq!(pressed(b"~/bin\r"), (b"~/bin\r".to_vec(), vec![]));
        assert_eq!(pressed(b"~\r~."), (b"~\r".to_vec(), vec![Escape::Leave]));
    }

    #[test]
    fn keys_that_went_nowhere_begin_no_line() {
        let mut escapes = Escapes::new();
        escapes.press(b'x');
        escapes.restart();
        assert_eq!(escapes.press(b'~'), Pressed::Undecided);
        escapes.restart();
        assert_eq!(escapes.press(b'.'), Pressed::Escape(Escape::Leave));
    }

    proptest! {
        #[test]
        fn keys_without_a_tilde_are_all_sent(keys in any::<Vec<u8>>()) {
            let keys: Vec<u8> = keys.into_iter().filter(|key| *key != b'~').collect();
            prop_assert_eq!(pressed(&keys), (keys, vec![]));
        }

        #[test]
        fn doubled_tildes_bring_any_line_to_the_guest(lines in proptest::collection::vec("[ -~]{0,20}", 0..10)) {
            let text: String = lines.iter().map(|line| format!("{line}\r")).collect();
            let double = |line: &String| if line.starts_with('~') { format!("~{line}\r") } else { format!("{line}\r") };
            let typed: String = lines.iter().map(double).collect();
            prop_assert_eq!(pressed(typed.as_bytes()), (text.into_bytes(), vec![]));
        }
    }
}
