//! SR-IOV, assigned NICs and root domains in full operation, on emulated servers.
//!
//! Requires root, a QEMU with SR-IOV NICs (8.0 or later) and a kernel for guests (`make kernel`). A server keeps
//! about half a CPU of this machine busy. There are two servers, or as many as `--test-threads`, which the tests share in
//! turn. Each test has its own lab, and leaves the server's NICs as it found them.

#[path = "../bench.rs"]
#[allow(dead_code, reason = "the tests of the command line use more of it")]
mod bench;
mod cpusets;
#[path = "../crash.rs"]
mod crash;
mod deaths;
mod devices;
mod disks;
mod domains;
mod frames;
mod guests;
mod networks;
#[path = "../port.rs"]
#[allow(dead_code, reason = "the tests of vtax-sys use more of it")]
mod port;
mod refusals;
mod switches;
#[path = "../transcript.rs"]
mod transcript;
mod transcripts;
mod tuning;
mod zones;

use std::{
    any::Any,
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::Output,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use bench::Bench;
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

/// Two cables, each from a NIC below `pci_0` to one below `pci_1`, and a virtio disk, `/dev/vdb`. Nearly all tests use
/// such a server, because booting another one takes as long as a test.
const SPEC: &str = "emulated:nics=4,disks=1";
/// The NICs of the first cable, and their names in `vtax io list`.
const NEAR: &str = "02:76:74:00:00:01";
const FAR: &str = "02:76:74:00:00:02";
const NEAR_NAME: &str = "pci_0/slot1/PF0";
/// Path of vtax in the server.
const VTAX: &str = "/run/vtax-programs/vtax";

type Test = fn(&Server);

/// The longest tests come first, so that both servers finish at about the same time.
const TESTS: [(&str, &str, Test); 25] = [
    ("tuning::bad_placement_and_bad_settings_of_a_nic_are_found_changed_and_brought_back", tuning::SPEC, tuning::tuned),
    ("transcripts::the_articles_on_physical_io_replay_with_their_reboots", SPEC, transcripts::physical_io),
    ("guests::a_study_comes_home", SPEC, guests::study),
    ("guests::a_function_goes_to_a_guest_and_back_to_its_driver", SPEC, guests::function),
    ("zones::a_whole_nic_and_large_packets", SPEC, zones::whole_nic),
    ("deaths::a_killed_vtax_leaves_nothing_that_clean_does_not_put_back", SPEC, deaths::killed),
    ("deaths::a_lab_without_its_journal_gives_its_nics_back", SPEC, deaths::lost),
    ("deaths::crashes_of_create_vf_leave_nothing_that_clean_does_not_put_back", SPEC, deaths::crashes),
    ("devices::a_root_complex_and_a_slot_go_to_a_domain_and_come_back", SPEC, devices::root_domain),
    ("devices::a_function_comes_into_a_domain_that_runs_and_goes", SPEC, devices::function),
    ("domains::domains_have_their_vlans_and_run", SPEC, domains::domains),
    ("disks::a_guest_gets_a_controller_of_the_server_and_gives_it_back", SPEC, disks::assigned),
    ("disks::disks_that_fail_hang_or_are_full_end_a_sample_and_not_the_machine", SPEC, disks::faults),
    ("disks::a_domain_has_block_devices", SPEC, disks::block_devices),
    ("networks::domains_see_their_vlans_only_and_send_from_their_addresses_only", SPEC, networks::on_the_wire),
    ("guests::a_whole_nic_goes_to_a_guest", SPEC, guests::whole_nic),
    ("guests::a_root_complex_goes_to_a_guest", SPEC, guests::root_complex),
    ("zones::functions_have_the_address_and_the_vlan_that_they_were_given", SPEC, zones::functions),
    ("zones::functions_made_by_hand_are_lent_and_come_back", SPEC, zones::lent),
    ("switches::each_frame_comes_where_its_vlan_is_and_nowhere_else", SPEC, switches::separated),
    ("devices::crashes_of_bind_leave_no_device_with_a_domain", SPEC, devices::crashes),
    ("devices::a_killed_vtax_leaves_no_device_with_a_domain", SPEC, devices::killed),
    ("cpusets::threads_are_confined_where_control_groups_have_version_2_only", SPEC, cpusets::confined),
    ("devices::what_cant_be_is_refused", SPEC, devices::refusals),
    ("refusals::what_cant_be_is_refused_before_anything_is_changed", SPEC, refusals::refused),
];

fn main() {
    if let Ok(at) = env::var(deaths::KILL_AT) {
        return deaths::kill_here(&at);
    }
    if let Ok(link) = env::var(tuning::TELL) {
        return tuning::tell_driver(&link);
    }
    if let Ok(link) = env::var(frames::AT_LINK) {
        return frames::at(&link);
    }
    if env::var_os(cpusets::CONFINE).is_some() {
        return cpusets::confine_here();
    }
    if env::var_os(switches::TRY).is_some() {
        return switches::try_switch();
    }
    let mut arguments = Arguments::from_args();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let servers = *arguments.test_threads.get_or_insert(cpus.min(2));
    let idle: Vec<Server> = (0..servers).map(|_| Server::new()).collect();
    let idle = Arc::new(Mutex::new(idle));
    let trials = TESTS.map(|(name, spec, test)| {
        let idle = Arc::clone(&idle);
        // Each kill takes seconds in the server, so this test runs in `make crash` only.
        let takes_long = name.contains("crashes") && env::var_os("VTAX_CRASH").is_none();
        let trial = Trial::test(name, move || {
            let server = best(&mut idle.lock().expect("nobody panics with it"), spec);
            let ended = catch_unwind(AssertUnwindSafe(|| server.hold(spec, test)));
            idle.lock().expect("nobody panics with it").push(server);
            ended.map_err(|panic| resume_unwind(panic))
        });
        trial.with_ignored_flag(takes_long)
    });
    let conclusion = libtest_mimic::run(&arguments, trials.into());
    idle.lock().expect("nobody panics with it").iter().for_each(Server::down);
    conclusion.exit();
}

/// Takes the idle server that needs the least change: preferably one with this specification, else one that is not up.
fn best(idle: &mut Vec<Server>, spec: &'static str) -> Server {
    let work = |server: &Server| match *server.is() {
        Some(is) if is == spec => 0,
        None => 1,
        Some(_) => 2,
    };
    let (best, _) =
        idle.iter().enumerate().min_by_key(|(_, server)| work(server)).expect("there are as many as threads");
    idle.swap_remove(best)
}

/// A server that tests share. The first test that needs it boots it.
struct Server {
    bench: Bench,
    /// Its specification at boot; `None` if it is not running.
    up: Mutex<Option<&'static str>>,
}

impl Server {
    fn new() -> Server {
        Server { bench: Bench::new(), up: Mutex::new(None) }
    }

    /// Runs a test. QEMU's nested virtualization occasionally fails: a kernel, of the server or of a guest in it,
    /// panics; one of several CPUs gets no ticks while it boots; or one of QEMU's own assertions fails. Only in these
    /// cases is the test repeated, on a new server.
    fn hold(&self, spec: &'static str, test: Test) {
        const SERVERS: usize = 3;
        for left in (0..SERVERS).rev() {
            let held = || {
                self.up(spec);
                test(self);
            };
            let Err(panic) = catch_unwind(AssertUnwindSafe(held)) else { return };
            // `&panic` would be an `Any` too, but of the box itself.
            let again = left > 0 && broke(&*panic);
            // The next test must not find anything that this one has left.
            self.bench().vtax(&["server", "down"]);
            *self.is() = None;
            if !again {
                resume_unwind(panic);
            }
            eprintln!("QEMU, or a kernel under it, failed; once more on another server");
        }
    }

    /// Boots the server, unless it is already up with this specification.
    fn up(&self, spec: &'static str) {
        if *self.is() != Some(spec) {
            self.down();
            self.bench.printed(&["server", "up", spec]);
            *self.is() = Some(spec);
        }
    }

    fn down(&self) {
        if self.is().take().is_some() {
            self.bench().printed(&["server", "down"]);
        }
    }

    fn is(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bench(&self) -> &Bench {
        &self.bench
    }

    /// Runs vtax in the server.
    fn vtax(&self, arguments: &[&str]) -> Output {
        self.bench().vtax(&[&["--server", "emulated"], arguments].concat())
    }

    fn printed(&self, arguments: &[&str]) -> String {
        bench::printed(&self.vtax(arguments))
    }

    /// Returns the message of vtax in the server about invalid input.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.vtax(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        told
    }

    /// Returns the output of a command in the server.
    fn shell(&self, script: &str) -> String {
        bench::printed(&self.bench().vtax(&["server", "exec", "--", "sh", "-c", script]))
    }

    /// Kills a run in the server with SIGKILL once a guest has a device of the server, and removes what it left.
    ///
    /// `is_lent` is a shell condition that checks whether the right device was assigned.
    fn kill_run_with_device(&self, run: &str, is_lent: &str) {
        // The guest's QEMU has opened the device once the process has its group's file open.
        self.shell(&format!(
            r#"export VTAX_STATE=/run/vtax-killed
            {VTAX} {run} >/run/killed.log 2>&1 &
            run=$!
            until ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q /dev/vfio/[0-9]; do
                kill -0 $run || {{ cat /run/killed.log >&2; exit 1; }}
                sleep 0.5
            done
            {is_lent} || {{ echo not lent >&2; exit 1; }}
            kill -9 $run"#
        ));
        let cleaned = self.printed(&["lab", "clean"]);
        assert!(cleaned.contains("removed run-"), "{cleaned}");
    }

    /// Builds a lab, which is taken down when the value is dropped.
    fn lab(&self, name: &str, mtu: u32, domains: &str) -> Lab<'_> {
        let file = self.write(name, mtu, domains);
        let plan = serde_json::from_str(&self.printed(&["lab", "up", &file, "--json"])).expect("JSON");
        Lab { server: self, name: name.to_owned(), plan }
    }

    /// Writes the file of a lab with the first cable, and returns its name.
    fn write(&self, name: &str, mtu: u32, domains: &str) -> String {
        let text = format!(
            r#"
[lab]
name = "{name}"
mtu = {mtu}
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "c0"
ends = ["sut", "peer"]
nics = ["{NEAR}", "{FAR}"]
{domains}"#
        );
        let file = format!("{name}.toml");
        fs::write(self.bench().path().join(&file), text).expect("a file of the test");
        file
    }

    /// Creates a function of the first NIC as a user would: with an address and a VLAN, and its own driver. This
    /// requires that the NIC is up.
    fn make_vf(&self) {
        self.shell(&format!("ip link set {} up", self.near()));
        let vf = ["io", "create-vf", "--mac", "02:00:5e:10:00:05", "--vlan", "5", NEAR];
        let made = self.printed(&vf);
        assert!(made.contains(&format!("Created new vf: {NEAR_NAME}.VF0")), "{made}");
    }

    fn destroy_vf(&self) {
        self.printed(&["io", "destroy-vf", NEAR]);
        self.shell(&format!("ip link set {} down", self.near()));
    }

    /// Returns the name of the first NIC's link.
    fn near(&self) -> String {
        let inventory = self.inventory();
        let name = &function(&inventory, NEAR_NAME)["function"]["netdev"]["name"];
        name.as_str().expect("it has a link").to_owned()
    }

    /// Fails unless every field of every device is as before: driver, address, VLAN, number of functions and all
    /// others.
    fn assert_as(&self, before: &Value) {
        let begun = Instant::now();
        let mut now = self.inventory();
        while now != *before && begun.elapsed() < bench::HANGS {
            now = self.inventory();
        }
        let entries = |inventory: &Value| inventory.as_array().expect("a list").clone();
        for (was, is) in entries(before).iter().zip(&entries(&now)) {
            assert_eq!(is, was, "it was left otherwise than it was found");
        }
        assert_eq!(entries(&now).len(), entries(before).len());
    }

    /// Returns every field of every PCI device in the server, except link-local addresses: the kernel adds them
    /// automatically, some time after the link has a carrier.
    fn inventory(&self) -> Value {
        let mut inventory: Value = serde_json::from_str(&self.printed(&["io", "list", "--json"])).expect("JSON");
        for entry in inventory.as_array_mut().expect("a list") {
            if let Some(Value::Array(addresses)) = entry.pointer_mut("/function/netdev/addresses") {
                addresses.retain(|address| !address.as_str().expect("a text").starts_with("fe80:"));
            }
        }
        inventory
    }
}

/// Returns true if a test failed because QEMU or a kernel did.
fn broke(panic: &(dyn Any + Send)) -> bool {
    let told = panic.downcast_ref::<String>().map_or("", String::as_str);
    let signs =
        ["Kernel panic", "guest `server` exited", "guest `server` has no agent on its port", "stopping the server"];
    signs.iter().any(|sign| told.contains(sign))
}

/// A lab in the server.
struct Lab<'a> {
    server: &'a Server,
    name: String,
    /// Output of `vtax lab up --json`.
    plan: Value,
}

impl Lab<'_> {
    /// Returns the output of a command in a domain of the lab, which must succeed.
    fn run(&self, domain: &str, command: &[&str]) -> String {
        bench::printed(&self.exec(domain, command))
    }

    fn exec(&self, domain: &str, command: &[&str]) -> Output {
        self.server.vtax(&[&["lab", "exec", &self.name, domain, "--"], command].concat())
    }

    fn down(self) {
        self.server.printed(&["lab", "down", &self.name]);
        std::mem::forget(self);
    }

    /// Returns the address of a domain.
    fn address(&self, domain: &str) -> String {
        let ends = self.plan["endpoints"].as_array().expect("endpoints");
        let end = ends.iter().find(|end| end["name"] == domain).expect("it is there");
        end["address"].as_str().expect("text").to_owned()
    }

    /// Returns true if packets of this size are answered.
    fn reaches(&self, from: &str, to: &str, bytes: u32) -> bool {
        // A link whose MTU has just been set needs a moment, and longer in the emulator.
        (0..3).any(|_| self.answered(from, to, bytes))
    }

    fn answered(&self, from: &str, to: &str, bytes: u32) -> bool {
        let (address, bytes) = (self.address(to), bytes.to_string());
        self.exec(from, &["busybox", "ping", "-A", "-c", "3", "-W", "5", "-s", &bytes, &address]).status.success()
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        self.server.vtax(&["lab", "down", &self.name]);
    }
}

/// Returns the inventory's entry for the function with this name.
fn function<'a>(inventory: &'a Value, name: &str) -> &'a Value {
    let entries = inventory.as_array().expect("a list");
    entries.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name} in {inventory}"))
}
