//! Output for people: standard output and standard error.
//!
//! Much of what vtax prints comes from elsewhere: from guests, remote hosts and files. A control character in it could
//! move the cursor or hide what was printed before. So everything is printed here, as [`visible`] text; Clippy refuses
//! `println!` and `eprintln!` in this program. A command that a user runs in a domain has its output copied unchanged.

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

/// Writes data to standard output. A reader that has exited, e.g. `head`, is not an error.
pub(crate) fn print(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    told(out.write_all(visible(text).as_bytes()).and_then(|()| out.flush()))
}

/// Prints a report, in colour on a terminal unless the user has set `NO_COLOR` (<https://no-color.org>).
pub(crate) fn print_styled(text: &StyledText) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    let painted = painted(text, out.is_terminal());
    told(out.write_all(painted.as_bytes()).and_then(|()| out.flush()))
}

/// Returns a report with the escape sequences of a terminal, or without colours.
pub(crate) fn painted(text: &StyledText, terminal: bool) -> String {
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let piece = |StyledPiece { text, style }: &StyledPiece| match colour(*style).filter(|_| terminal && !no_colour) {
        Some(code) => format!("\x1b[{code}m{}\x1b[0m", visible(text)),
        None => visible(text).into_owned(),
    };
    text.0.iter().map(piece).collect()
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) lines: usize,
}

/// Returns the size of the terminal behind a descriptor; 80 columns and 24 lines if it reports none.
pub(crate) fn size(terminal: impl AsFd) -> Size {
    let said = tcgetwinsize(terminal).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    said.map_or(Size { columns: 80, lines: 24 }, |size| Size { columns: size.ws_col.into(), lines: size.ws_row.into() })
}

/// Returns the parameters of ECMA-48's SGR.
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

/// Writes data to standard output while it is generated, for data that does not fit into memory.
pub(crate) fn print_written<E: Into<Stop>>(
    write: impl FnOnce(&mut dyn Write) -> Result<io::Result<()>, E>,
) -> Result<(), Stop> {
    let mut out = VisibleText(BufWriter::new(io::stdout().lock()));
    told(write(&mut out).map_err(Into::into)?.and_then(|()| out.flush()))
}

/// Writes data as [`visible`] text, in pieces of whole characters.
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

/// Prints a line for the user on standard error; takes the arguments of `format!`.
macro_rules! tell {
    ($($words:tt)*) => { $crate::terminal::tell(format_args!($($words)*)) };
}

/// Implements [`tell!`].
pub(crate) fn tell(words: fmt::Arguments<'_>) {
    if voice() != Voice::Quiet {
        tell_always(words);
    }
}

/// Reports an error, also with `--quiet`. If standard error cannot be written, the work continues without it.
pub(crate) fn tell_always(words: fmt::Arguments<'_>) {
    let line = words.to_string() + "\n";
    let _ = io::stderr().lock().write_all(visible(&line).as_bytes());
}

/// The amount of output on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Voice {
    /// Errors only.
    Quiet,
    /// Notes, warnings and occasional progress of a run.
    #[default]
    Usual,
    /// Each sample too.
    Verbose,
}

static VOICE: OnceLock<Voice> = OnceLock::new();

/// Chooses the voice, before any output. There is one for the whole program, as there is one standard error.
pub(crate) fn choose_voice(voice: Voice) {
    let _ = VOICE.set(voice);
}

pub(crate) fn voice() -> Voice {
    VOICE.get().copied().unwrap_or_default()
}
