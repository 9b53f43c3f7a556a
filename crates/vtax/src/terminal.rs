//! What people see: standard output and standard error.
//!
//! Much of what vtax prints comes from elsewhere: from guests, remote hosts and files. A control character in it could
//! move the cursor or hide what was printed before. So everything is printed here, as [`visible`] text; Clippy refuses
//! `println!` and `eprintln!` in this program. The output of a command that a user runs in a domain is copied as it is.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    io::{self, BufWriter, Write},
};

use crate::exit::{Blamed, Coded, Stop};

/// Writes data to standard output. A reader that has gone away, as `head`, is no error.
pub(crate) fn print(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    told(out.write_all(visible(text).as_bytes()).and_then(|()| out.flush()))
}

fn told(written: io::Result<()>) -> Result<(), Stop> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).coded("file", || "writing to standard output").or_infrastructure()
        }
        _ => Ok(()),
    }
}

/// Writes data to standard output while it is made, for more than fits into memory.
pub(crate) fn print_written<E: Into<Stop>>(
    write: impl FnOnce(&mut dyn Write) -> Result<io::Result<()>, E>,
) -> Result<(), Stop> {
    let mut out = VisibleText(BufWriter::new(io::stdout().lock()));
    told(write(&mut out).map_err(Into::into)?.and_then(|()| out.flush()))
}

/// Shows what is written, in pieces that are each whole characters, as [`visible`] text.
struct VisibleText<W>(W);

impl<W: Write> Write for VisibleText<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.0.write_all(visible(text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Tells the user something: a line on standard error, written like `format!`.
macro_rules! tell {
    ($($words:tt)*) => { $crate::terminal::tell(format_args!($($words)*)) };
}

/// What [`tell!`] calls. If standard error can't be written, the work goes on without it.
pub(crate) fn tell(words: fmt::Arguments<'_>) {
    let line = words.to_string() + "\n";
    let _ = io::stderr().lock().write_all(visible(&line).as_bytes());
}

/// The text with each control character, and each character that changes the direction of writing, as `\u001b`. Lines
/// and tabs stay. Text that is JSON stays the same JSON.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_hidden(character) {
            true => write!(shown, "\\u{:04x}", u32::from(character)).expect("a string takes all"),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

fn is_hidden(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control() && !matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        assert_eq!(
            visible("a\u{1b}[2Jb\u{9b}1mc\rd\u{7f}\u{202e}e\n\tf"),
            "a\\u001b[2Jb\\u009b1mc\\u000dd\\u007f\\u202ee\n\tf"
        );
        assert!(matches!(visible("vxlan costs +4.5 µs"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn json_stays_the_same_json(text in any::<String>()) {
            let json = serde_json::to_string_pretty(&[&text]).expect("text is JSON");
            let shown = visible(&json).into_owned();
            prop_assert!(!shown.contains(is_hidden));
            let [read]: [String; 1] = serde_json::from_str(&shown).expect("still JSON");
            prop_assert_eq!(read, text);
        }
    }
}
