//! What people see: standard output and standard error.
//!
//! Much of what vtax prints comes from elsewhere: from guests, remote hosts and files. A control character in it could
//! move the cursor or hide what was printed before. So everything is printed here, as [`visible`] text; Clippy refuses
//! `println!` and `eprintln!` in this program. The output of a command that a user runs in a domain is copied as it is.

use std::{
    fmt,
    io::{self, Write},
};

use vtax_model::foreign::visible;

use crate::exit::{Blamed, Coded, Stop};

/// Writes data to standard output. A reader that has gone away, as `head`, is no error.
pub(crate) fn print(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    match out.write_all(visible(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).coded("file", || "writing to standard output").or_infrastructure()
        }
        _ => Ok(()),
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
