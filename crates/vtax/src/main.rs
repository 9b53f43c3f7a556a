//! `vtax`: measures the network and disk overhead of virtualization, explains it, reduces it and proves the reduction.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

// First, because the others use its macro.
#[macro_use]
mod terminal;

mod calibrate;
mod called_as;
mod cli;
mod crosscheck;
mod exit;
mod explain;
mod import;
mod one_of;
mod progress;
mod remote_command;
mod whole_number;

use std::process::ExitCode;

fn main() -> ExitCode {
    vtax_sys::directory::unmask_owner();
    vtax_sys::lock::tell_waits(|wait| tell!("{wait}"));
    let line = cli::parse();
    let json = line.json;
    match cli::dispatch(line) {
        Ok(exit) => exit.code(),
        Err(stop) => exit::tell(&stop, json),
    }
}
