//! Cost of a guest: the time until it is usable, compared with that of its bare kernel; the time from `vtax lab up` to
//! a first sample; and memory.
//!
//! `cargo bench --bench guests`, as root, with QEMU and a kernel for guests (`make kernel`). Both boots have the same
//! image and the same arguments, except for the last word of the kernel's command line: with `--version`, the agent as
//! first process prints its version and exits; with `--guest`, it sets up the guest and serves.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;
use vtax_guest::locate;
use vtax_guest::{arguments::arguments, image, kernel::Kernel, launch::Launch};
use vtax_lab::{Facts, GuestNeeds, Lab, Lifetime, World, plan};
use vtax_model::{located::Source, topology::Topology};
use vtax_stats::{Confidence, Pair, PairedTax};
use vtax_sys::netns::{NetNs, Outlive};
use vtax_wire::link::AgentLink;

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 7;
const PATIENCE: Duration = Duration::from_secs(120);
/// Interval between polls of QEMU's log and of vtax's memory.
const GLANCE: Duration = Duration::from_millis(2);
const BOUND: f64 = 1.3;

fn lab(guests: usize) -> String {
    format!(
        "lab = {{ name = \"bench-guests\" }}\n\
         host = [{{ name = \"sut\" }}, {{ name = \"peer\" }}]\n\
         wire = [{{ name = \"w0\", ends = [\"sut\", \"peer\"] }}]\n\
         guest = [{{ name = \"g\", host = \"sut\", method = \"paravirtual\", memory = \"256 MiB\", count = {guests} }}]\n"
    )
}

fn main() -> Outcome<()> {
    let world = World::enter(Lifetime::Kept)?;
    let agent = locate::agent_program(None)?;
    boots(&Stand::new(&world, &agent)?)?;
    phases(&world, &agent)
}

/// A guest as vtax starts it, in a namespace where QEMU itself creates the tap.
struct Stand {
    launch: Launch,
    namespace: NetNs,
    folder: TempDir,
}

impl Stand {
    fn new(world: &World, agent: &Path) -> Outcome<Stand> {
        let topology = Topology::parse(Source { name: "bench", text: &lab(1) })?;
        let facts = Facts::gather(world)?.with_guests(world, &GuestNeeds::new(agent, None).of_lab(&topology));
        let plan = plan(&topology, &facts)?;
        let guest = plan.blueprint.guests.into_iter().next().ok_or("no guest in the plan")?;
        let folder = tempfile::tempdir()?;
        let launch = Launch { directory: folder.path().to_owned(), ..guest.launch };
        Ok(Stand { launch, namespace: NetNs::scratch()?, folder })
    }

    /// Starts QEMU with this last word on the kernel's command line, instead of `--guest`.
    fn start(&self, last_word: &str) -> Outcome<Running> {
        for file in fs::read_dir(self.folder.path())? {
            fs::remove_file(file?.path())?;
        }
        let mut arguments = arguments(&self.launch);
        let line = arguments.iter_mut().find(|argument| argument.ends_with(" --guest")).ok_or("no kernel is booted")?;
        *line = line.replace("--guest", last_word);
        let mut command = Command::new(&self.launch.qemu.path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let begun = Instant::now();
        Ok(Running { begun, child: self.namespace.spawn(command, Outlive::No)? })
    }

    /// Returns the seconds from QEMU's start until the first process prints its version.
    fn bare(&self) -> Outcome<f64> {
        let running = self.start("--version")?;
        running.until_said(&self.launch.console_log(), "vtax-agent ")
    }

    /// Returns the seconds from QEMU's start until the agent has opened its port, and until it has answered.
    fn whole(&self) -> Outcome<[f64; 2]> {
        let running = self.start("--guest")?;
        let (log, socket) = (self.launch.console_log(), self.launch.agent_socket());
        thread::scope(|scope| {
            let opened =
                scope.spawn(|| running.until_said(&log, "vtax-agent: ready").map_err(|error| error.to_string()));
            let link = AgentLink::connect_unix("the guest", &socket, PATIENCE)?;
            let answered = running.seconds();
            drop(link);
            Ok([opened.join().map_err(|_| "the watcher of the console panicked")??, answered])
        })
    }
}

/// A QEMU that is killed when the value is dropped.
struct Running {
    begun: Instant,
    child: Child,
}

impl Running {
    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn until_said(&self, log: &Path, part: &str) -> Outcome<f64> {
        while self.begun.elapsed() < PATIENCE {
            if fs::read_to_string(log).is_ok_and(|text| text.contains(part)) {
                return Ok(self.seconds());
            }
            thread::sleep(GLANCE);
        }
        Err(format!("no {part:?} in {} within {PATIENCE:?}", log.display()).into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compares the guest with its bare kernel, in rounds of both in random order.
fn boots(stand: &Stand) -> Outcome<()> {
    let Launch { accel, vcpus, memory, qemu, .. } = &stand.launch;
    println!("a guest of {vcpus} vCPU and {memory} under {accel} (QEMU {}); {ROUNDS} rounds\n", qemu.version);
    let (mut pairs, mut opened) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let first = coin()?.then(|| stand.bare()).transpose()?;
        let [open, answered] = stand.whole()?;
        let bare = first.map_or_else(|| stand.bare(), Ok)?;
        pairs.push(Pair { baseline: bare, cell: answered });
        opened.push(open);
    }
    let tax = PairedTax::of(&pairs, Confidence::P95)?;
    let of = |value: fn(&Pair) -> f64| median(&pairs.iter().map(value).collect::<Vec<_>>());
    println!("from QEMU's start, s, medians:");
    println!("  bare kernel, until its first process says its version  {:7.3}", of(|pair| pair.baseline));
    println!("  guest, until its agent has opened its port             {:7.3}", median(&opened));
    println!("  guest, until its agent has answered                    {:7.3}", of(|pair| pair.cell));
    println!(
        "  ratio of the last to the first {:.3} [{:.3}, {:.3}]; the bound is {BOUND}\n",
        tax.ratio, tax.low, tax.high
    );
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn coin() -> io::Result<bool> {
    let mut byte = [0];
    rustix::rand::getrandom(&mut byte, rustix::rand::GetRandomFlags::empty())?;
    Ok(byte[0] & 1 == 1)
}

/// Measures the time from `vtax lab up` to a first sample, with an empty cache and with a full one.
fn phases(world: &World, agent: &Path) -> Outcome<()> {
    let bench = Commands::new(agent)?;
    println!("from `vtax lab up` with two guests to a first sample in one, s:");
    println!("  image cache | image  QEMU started  agent answered | whole | first sample | vtax's own memory");
    for cache in ["empty", "full"] {
        let up = bench.vtax(&["lab", "up", "lab.toml", "--json"])?;
        let down = Down { bench: &bench };
        let built: Value = serde_json::from_str(&up.printed)?;
        let latest = |phase: &str| {
            let all = built["seconds"].as_array().into_iter().flatten();
            all.filter_map(|times| times[phase].as_f64()).fold(0.0, f64::max)
        };
        let ends = ["--from", "zone:bench-guests/peer", "--to", "zone:bench-guests/g-1"];
        let plan = ["--samples", "1", "--duration", "200ms", "--warmup", "0s"];
        let sample = bench.vtax(&[&["measure"], &ends[..], &plan[..]].concat())?;
        let first = first_sample(&sample.told).ok_or("vtax measure doesn't say when its sample began")?;
        println!(
            "  {cache:11} | {:5.2}  {:12.2}  {:14.2} | {:5.2} | {first:12.1} | {:.1} MiB",
            latest("image"),
            latest("qemu"),
            latest("agent"),
            up.seconds,
            up.memory as f64 / 1024.0
        );
        if cache == "full" {
            memory(world, sample.memory)?;
        }
        drop(down);
    }
    Ok(())
}

fn memory(world: &World, measuring: u64) -> Outcome<()> {
    let lab = Lab::open(world, &"bench-guests".parse()?)?;
    println!("\n`vtax measure` itself had {:.1} MiB at most", measuring as f64 / 1024.0);
    for guest in lab.guests() {
        let overhead = lab.guest(&guest.name)?.overhead()?;
        let own = overhead.0 as f64 / f64::from(1 << 20);
        println!("guest {}: {own:.1} MiB of QEMU's own beside its RAM of {}", guest.name, guest.launch.memory);
    }
    Ok(())
}

/// Returns the second time in a line such as `guests: first sample started in 0.3 s, 0.4 s since the start`.
fn first_sample(told: &str) -> Option<f64> {
    let line = told.lines().find(|line| line.contains("first sample started"))?;
    line.split(", ").nth(1)?.split(' ').next()?.parse().ok()
}

/// vtax with a separate image cache, which contains only an earlier verdict on KVM: determining it takes longer than
/// everything else, but is done only once per boot of the host.
struct Commands {
    folder: TempDir,
    agent: PathBuf,
    kernel: PathBuf,
}

/// Result of one command.
struct Ran {
    printed: String,
    told: String,
    seconds: f64,
    /// Peak memory in KiB.
    memory: u64,
}

impl Commands {
    fn new(agent: &Path) -> Outcome<Commands> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("lab.toml"), lab(2))?;
        fs::create_dir_all(folder.path().join("cache/vtax"))?;
        // If KVM works, there may be no stored verdict.
        let _ = fs::copy(image::cache()?.join("kvm"), folder.path().join("cache/vtax/kvm"));
        Ok(Commands { folder, agent: agent.to_owned(), kernel: Kernel::find(None)?.image })
    }

    fn vtax(&self, arguments: &[&str]) -> Outcome<Ran> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("VTAX_AGENT", &self.agent).env("VTAX_KERNEL", &self.kernel);
        command.env("XDG_CACHE_HOME", self.folder.path().join("cache"));
        command.env("VTAX_STATE", self.folder.path().join("state"));
        let begun = Instant::now();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pid = child.id();
        let output = thread::spawn(move || child.wait_with_output());
        let mut memory = 0;
        while !output.is_finished() {
            // The figure disappears with the process.
            memory = peak(pid).unwrap_or(memory);
            thread::sleep(GLANCE);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let output = output.join().map_err(|_| "the watcher of vtax panicked")??;
        let told = String::from_utf8(output.stderr)?;
        match output.status.success() {
            true => Ok(Ran { printed: String::from_utf8(output.stdout)?, told, seconds, memory }),
            false => Err(format!("vtax {arguments:?}: {told}").into()),
        }
    }
}

/// Returns the peak memory of a process in KiB (proc_pid_status(5)).
fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_ascii_whitespace().next()?.parse().ok()
}

/// Takes the lab down when dropped.
struct Down<'a> {
    bench: &'a Commands,
}

impl Drop for Down<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.bench.vtax(&["lab", "down", "bench-guests"]) {
            eprintln!("{error}");
            process::exit(1);
        }
    }
}
