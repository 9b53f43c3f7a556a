//! A guest prints 10 MB on its console while there are no users, one user, or one user with 20 readers: how long the
//! guest must wait for the console server. Its serial port is a socket of the benchmark, because QEMU's port is far
//! slower.
//!
//! `cargo bench --package vtax-console --bench consoles`. Each round measures all audiences, in turn. Afterwards, the
//! largest tables (docs/bounds.md): the time until they are served, and until a client has the menu of the largest
//! group.

#[path = "../crates/vtax-console/tests/sessions/rig.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod rig;

use std::{
    error::Error,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    thread::{self, JoinHandle},
    time::Instant,
};

use rig::{Client, Rig, free_port, name};
use vtax_console::{Bounds, Console, ConsoleAccess, ConsoleGroup, ConsoleId, GroupName};
use vtax_stats::{Confidence, Pair, PairedTax, Summary};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 15;
const PRINTED: usize = 10_000_000;
const READERS: usize = 20;
/// Maximum number of consoles in a table.
const CONSOLES: u32 = 1024;

/// Sessions at the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    Nobody,
    Writer,
    WriterAndReaders,
    /// One of the readers has stopped reading.
    OneStalled,
}

use Audience::{Nobody, OneStalled, Writer, WriterAndReaders};

impl Audience {
    const ALL: [Audience; 4] = [Nobody, Writer, WriterAndReaders, OneStalled];

    fn name(self) -> String {
        match self {
            Nobody => "nobody, only the log".to_owned(),
            Writer => "1 writer".to_owned(),
            WriterAndReaders => format!("1 writer and {READERS} readers"),
            OneStalled => format!("the same, 1 of the {READERS} stalled"),
        }
    }

    fn reading(self) -> usize {
        match self {
            Nobody => 0,
            Writer => 1,
            WriterAndReaders => 1 + READERS,
            OneStalled => READERS,
        }
    }
}

fn main() -> Outcome<()> {
    let mut seconds: [Vec<f64>; Audience::ALL.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (audience, seconds) in Audience::ALL.into_iter().zip(&mut seconds) {
            seconds.push(print(audience)?);
        }
    }
    println!(
        "a guest prints {} MB; {ROUNDS} rounds, s: median [least, most], and the ratio to nobody",
        PRINTED / 1_000_000
    );
    for (audience, taken) in Audience::ALL.into_iter().zip(&seconds) {
        let Summary { median, .. } = Summary::of(taken, Confidence::P95)?;
        let (least, most) = taken.iter().fold((f64::MAX, 0.0_f64), |(least, most), s| (least.min(*s), most.max(*s)));
        let pairs = seconds[0].iter().zip(taken).map(|(nobody, taken)| Pair { baseline: *nobody, cell: *taken });
        let tax = PairedTax::of(&pairs.collect::<Vec<_>>(), Confidence::P95)?;
        println!(
            "  {:30}  {median:.3} [{least:.3}, {most:.3}]   {:.2} [{:.2}, {:.2}]",
            audience.name(),
            tax.ratio,
            tax.low,
            tax.high
        );
    }
    println!("a stalled reader may cost the guest {:?}, once", Bounds::default().patience);
    largest();
    Ok(())
}

/// Measures the largest tables once each, which suffices to show that an operation is not linear.
fn largest() {
    println!("\n{CONSOLES} consoles, s");
    for (what, of_group) in [("a group each", 1), ("one group", CONSOLES)] {
        let rig = Rig::new(Bounds::default());
        let groups = groups(&rig, of_group);
        let seconds = |act: &mut dyn FnMut()| {
            let begun = Instant::now();
            act();
            begun.elapsed().as_secs_f64()
        };
        let served = seconds(&mut || rig.replace(&groups));
        let again = seconds(&mut || rig.replace(&groups[..groups.len() / 2]));
        let back = seconds(&mut || rig.replace(&groups));
        let asked = seconds(&mut || {
            let mut client = Client::to(groups[0].port);
            if of_group == 1 {
                client.reads("Connecting to console");
            } else {
                client.reads("q:");
                client.types("l\r");
                client.reads("d1023");
            }
        });
        let ended = seconds(&mut || rig.replace(&[]));
        println!(
            "  {what:12}  served {served:.3}, half of them removed {again:.3} and added {back:.3}, \
             a client has its console or the list {asked:.3}, all removed {ended:.3}"
        );
    }
}

/// Returns groups with all consoles, this many per group.
fn groups(rig: &Rig, of_group: u32) -> Vec<ConsoleGroup> {
    let console = |number| {
        let domain = format!("d{number}");
        let log = Some(rig.path(&format!("{domain}.log")));
        Console { id: ConsoleId(number), serial: rig.path(&domain), domain: name(&domain), log }
    };
    let numbers = (0..CONSOLES).step_by(of_group as usize);
    let group = |first| ConsoleGroup {
        name: GroupName { service: name("console"), name: name(&format!("g{first}")) },
        port: free_port(),
        access: ConsoleAccess::Everybody,
        consoles: (first..first + of_group).map(console).collect(),
    };
    numbers.map(group).collect()
}

/// Returns the seconds until the server has received all of the guest's output.
fn print(audience: Audience) -> Outcome<f64> {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let stalled = (audience == OneStalled).then(|| attend(port));
    let readers: Vec<TcpStream> = (0..audience.reading()).map(|_| attend(port)).collect();
    let draining: Vec<JoinHandle<()>> = readers.iter().map(drain).collect::<Result<_, _>>()?;
    let line = [b'x'; 79].into_iter().chain([b'\n']).collect::<Vec<u8>>();
    let begun = Instant::now();
    for _ in 0..PRINTED / line.len() {
        mars.stream.write_all(&line)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    for reader in readers.iter().chain(&stalled) {
        reader.shutdown(Shutdown::Both)?;
    }
    draining.into_iter().for_each(|thread| thread.join().expect("it only reads"));
    Ok(seconds)
}

/// Opens a session at the console.
fn attend(port: u16) -> TcpStream {
    let mut client = Client::to(port);
    client.reads("options ..");
    client.stream
}

fn drain(session: &TcpStream) -> Outcome<JoinHandle<()>> {
    let mut session = session.try_clone()?;
    Ok(thread::spawn(move || {
        let mut bytes = [0; 64 << 10];
        while session.read(&mut bytes).is_ok_and(|count| count > 0) {}
    }))
}
