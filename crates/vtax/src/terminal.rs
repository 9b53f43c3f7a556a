//! What people see: standard output and standard error.
//!
//! Much of what vtax prints comes from elsewhere: from guests, remote hosts and files. A control character in it could
//! move the cursor or hide what was printed before. So everything is printed here, as [`visible`] text; Clippy refuses
//! `println!` and `eprintln!` in this program. The output of a command that a user runs in a domain is copied as it is.

use std::{
    env, fmt,
    io::{self, BufWriter, IsTerminal, Write},
    os::fd::AsFd,
    sync::OnceLock,
};

use rustix::termios::tcgetwinsize;
use vtax_model::foreign::visible;
use vtax_report::{Style, StyledPiece, StyledText};

use crate::exit::{Blamed, Coded, Stop};

/// Writes data to standard output. A reader that has gone away, as `head`, is no error.
pub(crate) fn print(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    told(out.write_all(visible(text).as_bytes()).and_then(|()| out.flush()))
}

/// Prints a report, in colour if that is a terminal's and the user hasn't set `NO_COLOR` (<https://no-color.org>).
pub(crate) fn print_styled(text: &StyledText) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    let painted = painted(text, out.is_terminal());
    told(out.write_all(painted.as_bytes()).and_then(|()| out.flush()))
}

/// A report as a terminal takes it, or without colours.
pub(crate) fn painted(text: &StyledText, terminal: bool) -> String {
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let piece = |StyledPiece { text, style }: &StyledPiece| match colour(*style).filter(|_| terminal && !no_colour) {
        Some(code) => format!("\x1b[{code}m{}\x1b[0m", visible(text)),
        None => visible(text).into_owned(),
    };
    text.0.iter().map(piece).collect()
}

/// How much a terminal has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) lines: usize,
}

/// The size of the terminal behind a descriptor; 80 columns and 24 lines if it doesn't say.
pub(crate) fn size(terminal: impl AsFd) -> Size {
    let said = tcgetwinsize(terminal).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    said.map_or(Size { columns: 80, lines: 24 }, |size| Size { columns: size.ws_col.into(), lines: size.ws_row.into() })
}

/// The parameters of ECMA-48's SGR.
fn colour(style: Style) -> Option<&'static str> {
    match style {
        Style::Plain => None,
        Style::Title => Some("1"),
        Style::Warning => Some("33"),
        Style::Worse => Some("31"),
        Style::Better => Some("32"),
        Style::Faint => Some("2"),
    }
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

/// What [`tell!`] calls.
pub(crate) fn tell(words: fmt::Arguments<'_>) {
    if voice() != Voice::Quiet {
        tell_always(words);
    }
}

/// Tells an error, also with `--quiet`. If standard error can't be written, the work goes on without it.
pub(crate) fn tell_always(words: fmt::Arguments<'_>) {
    let line = words.to_string() + "\n";
    let _ = io::stderr().lock().write_all(visible(&line).as_bytes());
}

/// How much is told on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Voice {
    /// Errors only.
    Quiet,
    /// Notes, warnings and now and then how far a run is.
    #[default]
    Usual,
    /// Each sample too.
    Verbose,
}

static VOICE: OnceLock<Voice> = OnceLock::new();

/// Chooses the voice, before anything is told. It is one for the whole program, as standard error is.
pub(crate) fn choose_voice(voice: Voice) {
    let _ = VOICE.set(voice);
}

pub(crate) fn voice() -> Voice {
    VOICE.get().copied().unwrap_or_default()
}
