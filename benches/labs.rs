//! Building and removing a lab of zones on a bridge, compared with building the same lab by the `ip` command: with a
//! process per command, as scripts do it, and with `ip -batch`.
//!
//! `cargo bench --bench labs`, as root. Each size is measured in rounds, which alternate between the three ways.

use std::{
    error::Error,
    fmt::Write as _,
    io::Write as _,
    process::{self, Command, Stdio},
    time::Instant,
};

use vtax_lab::{Facts, Lab, Lifetime, World, plan};
use vtax_model::{located::Source, topology::Topology};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SIZES: [usize; 3] = [10, 100, 500];
const ROUNDS: usize = 3;

/// Time to build and to remove a lab, in milliseconds.
#[derive(Default, Clone, Copy)]
struct Times {
    up: f64,
    down: f64,
}

fn main() -> Outcome<()> {
    let world = World::enter(Lifetime::Ephemeral)?;
    println!("zones on a bridge; ms, median of {ROUNDS} rounds\n");
    println!("zones |   vtax up    down  per zone |  ip up    down |  ip -batch up    down");
    for zones in SIZES {
        let mut taken: [Vec<Times>; 3] = Default::default();
        for _ in 0..ROUNDS {
            taken[0].push(ours(&world, zones)?);
            taken[1].push(by_commands(zones)?);
            taken[2].push(by_batch(zones)?);
        }
        let [ours, commands, batch] = taken.map(|times| median(&times));
        println!(
            "{zones:5} | {:9.1} {:7.1} {:9.2} | {:6.0} {:7.0} | {:13.0} {:7.0}",
            ours.up,
            ours.down,
            (ours.up + ours.down) / zones as f64,
            commands.up,
            commands.down,
            batch.up,
            batch.down
        );
    }
    Ok(())
}

fn median(times: &[Times]) -> Times {
    let middle = |value: fn(&Times) -> f64| {
        let mut values: Vec<f64> = times.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Times { up: middle(|times| times.up), down: middle(|times| times.down) }
}

fn timed<T>(job: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
    let begun = Instant::now();
    let done = job()?;
    Ok((begun.elapsed().as_secs_f64() * 1e3, done))
}

fn ours(world: &World, zones: usize) -> Outcome<Times> {
    let text = format!(
        "lab = {{ name = \"bench-labs\" }}\n\
         host = [{{ name = \"sut\" }}, {{ name = \"peer\" }}]\n\
         wire = [{{ name = \"w0\", ends = [\"sut\", \"peer\"] }}]\n\
         zone = [{{ name = \"z\", host = \"sut\", method = \"bridge\", count = {zones} }}]\n"
    );
    let (up, lab) = timed(|| {
        let topology = Topology::parse(Source { name: "bench", text: &text })?;
        Ok(Lab::up(world, plan(&topology, &Facts::gather(world)?)?, Lifetime::Ephemeral)?)
    })?;
    let (down, ()) = timed(|| Ok(lab.down()?))?;
    Ok(Times { up, down })
}

/// Returns the commands that build the same lab, and those that remove it. They remove only names that contain this
/// process's id.
fn commands(zones: usize) -> (Vec<String>, Vec<String>) {
    let name = |part: &str| format!("vb{}-{part}", process::id());
    let (sut, peer) = (name("sut"), name("peer"));
    let mut up = vec![
        format!("netns add {sut}"),
        format!("netns add {peer}"),
        format!("-n {sut} link add wire0 mtu 1500 type veth peer name wire0 netns {peer}"),
        format!("-n {sut} link add vsw0 type bridge"),
        format!("-n {sut} link set wire0 master vsw0 up"),
        format!("-n {sut} link set vsw0 up"),
        format!("-n {sut} address add 198.19.0.1/20 dev vsw0"),
        format!("-n {peer} link set wire0 up"),
        format!("-n {peer} address add 198.19.0.2/20 dev wire0"),
    ];
    let mut down = vec![format!("netns del {sut}"), format!("netns del {peer}")];
    for zone in 0..zones {
        let space = name(&zone.to_string());
        let address = format!("198.19.{}.{}/20", 1 + zone / 250, 1 + zone % 250);
        up.push(format!("netns add {space}"));
        up.push(format!("-n {sut} link add vnet{zone} type veth peer name eth0 netns {space}"));
        up.push(format!("-n {sut} link set vnet{zone} alias bench:{zone} master vsw0 up"));
        up.push(format!("-n {space} link set lo up"));
        up.push(format!("-n {space} link set eth0 alias bench:{zone} up"));
        up.push(format!("-n {space} address add {address} dev eth0"));
        down.push(format!("netns del {space}"));
    }
    (up, down)
}

fn by_commands(zones: usize) -> Outcome<Times> {
    let (up, down) = commands(zones);
    let each = |commands: Vec<String>| -> Outcome<()> {
        for command in commands {
            let status = Command::new("ip").args(command.split(' ')).status()?;
            if !status.success() {
                return Err(format!("ip {command}: {status}").into());
            }
        }
        Ok(())
    };
    let (up, ()) = timed(|| each(up))?;
    let (down, ()) = timed(|| each(down))?;
    Ok(Times { up, down })
}

/// Runs a batch for each namespace, because `-n` is an option of the process and not of a line.
fn by_batch(zones: usize) -> Outcome<Times> {
    let (up, down) = commands(zones);
    let (up, ()) = timed(|| batches(&up))?;
    let (down, ()) = timed(|| batches(&down))?;
    Ok(Times { up, down })
}

fn batches(commands: &[String]) -> Outcome<()> {
    let mut rest = commands.iter().map(|command| in_namespace(command)).peekable();
    while let Some((namespace, first)) = rest.next() {
        let mut text = format!("{first}\n");
        while let Some((_, line)) = rest.next_if(|(next, _)| *next == namespace) {
            writeln!(text, "{line}")?;
        }
        batch(namespace, &text)?;
    }
    Ok(())
}

/// Splits `-n NAMESPACE command` into the namespace and the command.
fn in_namespace(command: &str) -> (Option<&str>, &str) {
    let split = command.strip_prefix("-n ").and_then(|rest| rest.split_once(' '));
    split.map_or((None, command), |(namespace, line)| (Some(namespace), line))
}

fn batch(namespace: Option<&str>, text: &str) -> Outcome<()> {
    let mut command = Command::new("ip");
    command.args(namespace.iter().flat_map(|name| ["-n", name])).args(["-batch", "-"]).stdin(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().ok_or("no standard input")?.write_all(text.as_bytes())?;
    match child.wait()?.success() {
        true => Ok(()),
        false => Err(format!("ip -batch failed on:\n{text}").into()),
    }
}
