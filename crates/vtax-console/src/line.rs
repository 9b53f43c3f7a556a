//! Line typed at the menu. The server echoes it, according to telnet's ECHO.

/// Maximum length of the line; no choice of the menu is as long.
pub(crate) const LENGTH_MOST: usize = 64;

const BELL: &str = "\x07";
const RUB_OUT: &str = "\x08 \x08";

/// Text typed so far.
#[derive(Debug, Default)]
pub(crate) struct MenuLine {
    text: String,
}

/// Effect of a key on a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Edited {
    /// Text to echo.
    Shown(String),
    /// The line has ended, and is now empty.
    Ended(String),
}

impl MenuLine {
    pub(crate) fn press(&mut self, key: u8) -> Edited {
        const CTRL_U: u8 = 0x15;
        match key {
            b'\r' | b'\n' => Edited::Ended(std::mem::take(&mut self.text)),
            b' '..=b'~' if self.text.len() == LENGTH_MOST => Edited::Shown(BELL.into()),
            b' '..=b'~' => {
                self.text.push(char::from(key));
                Edited::Shown(char::from(key).into())
            }
            0x08 | 0x7f => Edited::Shown(self.text.pop().map_or(String::new(), |_| RUB_OUT.into())),
            CTRL_U => Edited::Shown(RUB_OUT.repeat(std::mem::take(&mut self.text).len())),
            _ => Edited::Shown(String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str) -> (String, Option<String>) {
        let (mut line, mut shown) = (MenuLine::default(), String::new());
        for key in keys.bytes() {
            match line.press(key) {
                Edited::Shown(text) => shown += &text,
                Edited::Ended(text) => return (shown, Some(text)),
            }
        }
        (shown, None)
    }

    #[test]
    fn a_typed_line_is_echoed() {
        assert_eq!(typed("npluto\r"), ("npluto".into(), Some("npluto".into())));
        assert_eq!(typed("lx\x7f\x08\x08q\r"), (format!("lx{RUB_OUT}{RUB_OUT}q"), Some("q".into())));
        assert_eq!(typed("abc\x15l\n"), (format!("abc{}l", RUB_OUT.repeat(3)), Some("l".into())));
        assert_eq!(typed("\x1b[A\x07"), ("[A".into(), None));
    }

    #[test]
    fn a_line_has_a_bound() {
        let (shown, line) = typed(&format!("{}\r", "x".repeat(LENGTH_MOST + 3)));
        assert_eq!(line, Some("x".repeat(LENGTH_MOST)));
        assert_eq!(shown, "x".repeat(LENGTH_MOST) + &BELL.repeat(3));
    }
}
