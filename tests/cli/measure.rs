//! Invalid input of `vtax measure` and of studies with endpoints: refused before anything runs.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path};

use super::{Bench, STUDY};

fn refused(arguments: &[&str]) -> String {
    Bench::new().refused(&[&["measure"], arguments].concat())
}

#[test]
fn wrong_words_of_measure_are_refused() {
    insta::assert_snapshot!("unknown_test", refused(&["--test", "sctp-rr"]));
    insta::assert_snapshot!("unknown_end", refused(&["--to", "vm1"]));
    insta::assert_snapshot!("end_that_is_an_option", refused(&["--to", "ssh:-oProxyCommand=x"]));
    insta::assert_snapshot!("unknown_engine", refused(&["--engine", "kqueue"]));
    insta::assert_snapshot!("rate_without_number", refused(&["--rate", "many"]));
    insta::assert_snapshot!("gap_without_unit", refused(&["--gap", "0,1"]));
    insta::assert_snapshot!("pin_of_nothing", refused(&["--pin", "0;1"]));
    insta::assert_snapshot!("warmup_of_nothing", refused(&["--warmup", "steadily"]));
    insta::assert_snapshot!("dscp_of_nothing", refused(&["--dscp", "best"]));
    insta::assert_snapshot!("device_of_nothing", refused(&["--from-device", "a/b"]));
    insta::assert_snapshot!("size_twice", refused(&["--sizes", "64,64"]));
}

#[test]
fn options_that_make_no_sense_together_are_refused_by_name() {
    insta::assert_snapshot!("burst_and_gap", refused(&["--burst", "4", "--gap", "1ms"]));
    insta::assert_snapshot!("gap_of_a_stream", refused(&["--test", "tcp-stream", "--gap", "1ms"]));
    insta::assert_snapshot!("gro_over_tcp", refused(&["--test", "tcp-stream", "--gro"]));
    insta::assert_snapshot!("nodelay_over_udp", refused(&["--test", "udp-rr", "--nodelay", "off"]));
    insta::assert_snapshot!("request_of_a_stream", refused(&["--test", "tcp-stream", "--request", "64"]));
    insta::assert_snapshot!("crr_over_udp", refused(&["--test", "udp-crr"]));
    insta::assert_snapshot!("threads_of_blocking", refused(&["--streams", "4", "--threads", "2"]));
    insta::assert_snapshot!("too_many_flows", refused(&["--streams", "2000"]));
    insta::assert_snapshot!("datagram_beyond_any_path", refused(&["--test", "udp-rr", "--request", "66000"]));
    insta::assert_snapshot!("sweep_with_a_size_of_nothing", refused(&["--sizes", "64,0"]));
    insta::assert_snapshot!("zerocopy_with_io_uring", {
        refused(&["--test", "tcp-stream", "--engine", "io-uring", "--send", "zerocopy"])
    });
    insta::assert_snapshot!("series_of_too_many", refused(&["--interval", "1us", "--duration", "10s"]));
    insta::assert_snapshot!("too_short", refused(&["--duration", "1ms"]));
    insta::assert_snapshot!("no_samples", refused(&["--samples", "0"]));
    insta::assert_snapshot!("addresses_without_ends", refused(&["--to-address", "::1", "--to-address", "::2"]));
    insta::assert_snapshot!("ends_that_do_not_pair_off", {
        refused(&["--to", "ssh:a", "--to", "ssh:b", "--from", "ssh:c", "--from", "ssh:d", "--from", "ssh:e"])
    });
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("a file of the test");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// Each login waits for the others, so connecting in sequence would never finish.
#[test]
fn endpoints_are_connected_at_the_same_time_and_each_failure_is_named() {
    let bench = Bench::new();
    let (bin, log) = (bench.path().join("bin"), bench.path().join("log"));
    fs::create_dir(&bin).expect("a directory");
    let ssh = format!(
        "#!/bin/sh\nwhile [ $# -gt 1 ]; do host=$1; shift; done\necho begins >>'{log}'\ni=0\n\
         while [ $(grep -c begins '{log}') -lt 4 ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done\n\
         echo ends >>'{log}'\necho no route to $host >&2\nexit 255\n",
        log = log.display()
    );
    write_program(&bin.join("ssh"), &ssh);
    let agent = bin.join("vtax-agent");
    write_program(&agent, &format!("#!/bin/sh\necho '{}'\n", vtax_wire::protocol::version_line()));
    let ends = ["--from", "ssh:a", "--from", "ssh:b", "--to", "ssh:c", "--to", "ssh:d"];
    let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap_or_default());
    let mut command = bench.command(&[&["measure"], &ends[..]].concat());
    let output = command.env("PATH", path).env("VTAX_AGENT", &agent).output().expect("vtax runs");
    let told = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("4 endpoints cannot be used"), "{told}");
    for host in ["a", "b", "c", "d"] {
        assert!(told.contains(&format!("no route to {host}")), "{host}: {told}");
    }
    let log = fs::read_to_string(log).expect("logins");
    let events: Vec<&str> = log.lines().collect();
    assert_eq!(events, [["begins"; 4], ["ends"; 4]].concat());
}

#[test]
fn a_load_that_cannot_be_is_refused_before_anything_runs() {
    insta::assert_snapshot!("load_of_nothing", refused(&["--under", "tcp-rr"]));
    insta::assert_snapshot!("load_with_a_direction_of_nothing", refused(&["--under", "tcp-stream,direction=up"]));
    insta::assert_snapshot!("load_of_a_stream", refused(&["--under", "tcp-stream", "--test", "tcp-stream"]));
    insta::assert_snapshot!("load_until_steady", refused(&["--under", "tcp-stream", "--warmup", "steady"]));
    insta::assert_snapshot!("load_of_engines", refused(&["--under", "tcp-stream", "--engine", "all"]));
    insta::assert_snapshot!("load_twice", refused(&["--under", "tcp-stream", "--under", "tcp-stream,streams=1"]));
    let disks = refused(&["--under", "tcp-stream", "--disk", "disk.img"]);
    assert!(disks.contains("cannot be used with '--disk"), "{disks}");
}

#[test]
fn ends_that_cannot_reach_each_other_are_refused() {
    insta::assert_snapshot!("two_families", refused(&["--to-address", "::1", "--from-address", "127.0.0.1"]));
    let told = refused(&["--to-address", "192.0.2.77"]);
    assert!(told.contains("192.0.2.77") && told.contains("127.0.0.1 (lo)"), "{told}");
    let told = refused(&["--test", "udp-rr", "--pin", "5000"]);
    assert!(told.contains("CPU 5000 of "), "{told}");
}

#[test]
fn a_rate_of_nothing_is_refused_before_anything_runs() {
    let told = refused(&["--rate", "0"]);
    assert!(told.contains("invalid request rate `0`"), "{told}");
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_refused_before_the_run() {
    let told = refused(&["--congestion", "reno2"]);
    assert!(told.contains("--congestion reno2") && told.contains("in this kernel"), "{told}");
    let bench = Bench::new();
    let told = bench.refused(&["run", "demo", "--congestion", "reno2"]);
    assert!(told.contains("--congestion reno2"), "{told}");
}

#[test]
fn an_agent_that_does_not_exist_is_named_with_its_option() {
    assert!(refused(&["--agent", "/nonexistent"]).contains("--agent names /nonexistent"));
}

#[test]
fn vsock_on_one_machine_names_no_unrequested_port() {
    let output = Bench::new().vtax(&["measure", "--test", "vsock-rr", "--quick", "--duration", "20ms"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!told.contains("4294967295"), "{told}");
    assert!(output.status.success() || output.status.code() == Some(69) && told.contains("vsock_loopback"), "{told}");
}

const ENDPOINTS: &str = r#"
[[endpoint]]
end = "initiator"
control = "local"
[[endpoint]]
end = "responder"
control = "local"
"#;

#[test]
fn a_study_on_endpoints_is_refused_where_it_cannot_be_measured() {
    let study = |from: &str, to: &str| {
        let text = STUDY.to_owned() + ENDPOINTS;
        assert!(text.contains(from), "{from}");
        Bench::new().with("mine.toml", &text.replace(from, to)).refused(&["run", "mine.toml"])
    };
    let host = fs_hostname();
    // The loopback link has an MTU of 65,536, and no study uses 1,500 on it intentionally.
    insta::assert_snapshot!("another_mtu", study("[plan]", "[plan]").replace(&host, "[host]"));
    insta::assert_snapshot!(
        "endpoint_of_no_row",
        study("end = \"responder\"", "end = \"responder\"\nmethod = \"veth\"")
    );
    insta::assert_snapshot!("no_responder", study("end = \"responder\"", "end = \"responder\"\nmtu = 9000"));
    insta::assert_snapshot!("burst_with_gap", { study("[plan]", "[options]\nburst = 2\ngap = \"1ms\"\n[plan]") });
    insta::assert_snapshot!("size_of_nothing", study("[plan]", "sizes = [0]\n[plan]"));
}

fn fs_hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").expect("the kernel tells").trim().to_owned()
}

#[test]
fn a_file_of_endpoints_is_refused_with_its_line() {
    let with =
        |text: &str| Bench::new().with("vms.toml", text).refused(&["run", "sparc-t7-1", "--endpoints", "vms.toml"]);
    insta::assert_snapshot!("endpoints_of_nothing", with(""));
    insta::assert_snapshot!("endpoints_with_a_wrong_way", with(&ENDPOINTS.replace("local", "vm1")));
    insta::assert_snapshot!("endpoints_of_another_row", {
        with(&ENDPOINTS.replace("end = \"responder\"", "end = \"responder\"\nmethod = \"shared-to-shared\""))
    });
    insta::assert_snapshot!("endpoints_without_the_baseline", {
        with(&ENDPOINTS.replace("end = \"responder\"", "end = \"responder\"\nmethod = \"bridge\""))
    });
    insta::assert_snapshot!("no_file", Bench::new().refused(&["run", "demo", "--endpoints", "nowhere.toml"]));
}
