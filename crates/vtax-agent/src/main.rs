//! The agent program. It serves the coordinator on standard input and output, or in a guest.
//!
//! It must stay small, because it is copied into every guest and started in every zone. It has few arguments and parses
//! them without a library.

#![forbid(unsafe_code)]

use std::{
    env,
    ffi::OsString,
    fs::File,
    io,
    os::fd::AsFd,
    path::Path,
    process::{self, ExitCode},
};

use vtax_agent::{
    carried,
    guest::{self, GuestSettings, MODULES},
    server::{self, AgentRights, Measuring},
};
use vtax_model::options::THREADS_MOST;
use vtax_sys::{directory, layout, process::raise_open_files};
use vtax_wire::{limits::FLOWS_MOST, protocol::version_line};

const HELP: &str = "\
The vtax agent: measures on behalf of vtax in the domain where it runs.

Usage: vtax-agent --stdio
       vtax-agent --port
       vtax-agent --guest [--modules FILE] [--root TAG] [--lent TAG]

  --stdio         serve the coordinator on standard input and output until they close
  --carried       after --stdio: remove this file first, a copy made by vtax
  --port          serve successive coordinators on the virtio-serial port of a
                  guest, org.vtax.agent.0
  --guest         as --port, but as the first process of a guest, which sets it up;
                  the /init of vtax's own images
  --modules FILE  after --guest: list of kernel modules to load, in order
                  (default: /etc/vtax/modules)
  --root TAG      after --guest: use the 9p share with this tag as root directory;
                  it is read-only, and writes go to the guest's memory
  --lent TAG      after --guest: mount the 9p share with this tag at /vtax/lent, read-only
  --version       print the version
  --help          print this

vtax starts its agents itself in zones and in guests that it boots. On a remote host
it uses ssh to start the agent in the PATH, or its own copy if there is none of the
same version. In other guests, start `vtax-agent --port` at boot.
";

/// Exit status for invalid usage, the same as vtax's.
const WRONG_USAGE: u8 = 2;
/// Exit status for failed infrastructure, the same as vtax's.
const FAILED: i32 = 69;
/// Open files for the flows of all sessions, for the waiting of their threads, and for the rest.
const OPEN_FILES: u64 = FLOWS_MOST as u64 + 2 * THREADS_MOST as u64 + 64;

fn main() -> ExitCode {
    directory::unmask_owner();
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let words = arguments.iter().map(|word| word.to_str().unwrap_or_default());
    // The kernel passes all unknown words of its command line to its first process.
    let words: Vec<_> = words.skip_while(|word| process::id() == 1 && !word.starts_with("--")).collect();
    if let ["--stdio" | "--port", ..] = words[..] {
        // If this fails, the addresses remain random: figures are still valid, but differ more between two agents.
        let _ = layout::fix();
    }
    match words[..] {
        ["--stdio"] => serve(),
        ["--port"] => serve_port(),
        ["--guest", ref options @ ..] if let Some(place) = place(options) => {
            let Err(error) = guest::live(&place);
            fail(&error.to_string())
        }
        ["--stdio", "--carried"] => {
            carried::remove_self().unwrap_or_else(|error| fail(&error.to_string()));
            serve()
        }
        ["--version" | "-V"] => println!("{}", version_line()),
        ["--help" | "-h"] => print!("{HELP}"),
        _ => {
            eprint!("vtax-agent: unknown or missing arguments\n\n{HELP}");
            return ExitCode::from(WRONG_USAGE);
        }
    }
    ExitCode::SUCCESS
}

/// Serves, then ends the process even if sessions are still running: nothing of the agent outlives its stream.
fn serve() -> ! {
    // If the limit cannot be raised, a test with too many streams reports it.
    let _ = raise_open_files(OPEN_FILES);
    let served = open_streams().map_err(|error| format!("cannot open standard input and output: {error}"));
    let served = served.and_then(|(reader, writer)| {
        server::serve(reader, writer, Measuring::default(), AgentRights::Visitor).map_err(|error| error.to_string())
    });
    match served {
        Ok(_) => process::exit(0),
        Err(why) => fail(&why),
    }
}

fn serve_port() -> ! {
    let _ = raise_open_files(OPEN_FILES);
    guest::serve(AgentRights::Guest).unwrap_or_else(|error| fail(&error.to_string()));
    process::exit(0)
}

/// Parses the options of `--guest`, in any order.
fn place<'a>(options: &[&'a str]) -> Option<GuestSettings<'a>> {
    let usual = GuestSettings { modules: Path::new(MODULES), root: None, lent: None, open_files: OPEN_FILES };
    options.chunks(2).try_fold(usual, |place, option| match *option {
        ["--modules", list] => Some(GuestSettings { modules: Path::new(list), ..place }),
        ["--root", tag] => Some(GuestSettings { root: Some(tag), ..place }),
        ["--lent", tag] => Some(GuestSettings { lent: Some(tag), ..place }),
        _ => None,
    })
}

fn fail(why: &str) -> ! {
    eprintln!("vtax-agent: {why}");
    process::exit(FAILED)
}

/// Opens the streams as plain files, so that a frame is a single write without line buffering.
fn open_streams() -> io::Result<(File, File)> {
    let reader = io::stdin().as_fd().try_clone_to_owned()?;
    let writer = io::stdout().as_fd().try_clone_to_owned()?;
    Ok((reader.into(), writer.into()))
}
