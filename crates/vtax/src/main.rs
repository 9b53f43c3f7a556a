//! `vtax`: measures what virtualization costs a network, explains it, cuts it, proves the cut.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

// First, for its macro is used by the others.
#[macro_use]
mod terminal;

mod calibrate;
mod cli;
mod crosscheck;
mod exit;
mod explain;
mod interrupt;
mod labs;
mod locations;
mod lock_file;
mod one_of;
mod phases;
mod remote_command;
mod rig;
mod server;
mod study;
mod threads;
mod whole_number;

use std::process::ExitCode;

fn main() -> ExitCode {
    let line = cli::parse();
    let json = line.json;
    match cli::dispatch(line) {
        Ok(exit) => exit.code(),
        Err(stop) => stop.tell(json),
    }
}
