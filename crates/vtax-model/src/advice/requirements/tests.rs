use proptest::prelude::*;

use super::*;

fn span(text: &str) -> Option<Span> {
    Some(text.parse().expect("a time"))
}

fn refused(options: RequirementOptions) -> String {
    Requirements::new(options).expect_err("refused").to_string()
}

#[test]
fn contradictions_name_both_requirements() {
    let given = RequirementOptions::default;
    assert_eq!(
        refused(RequirementOptions { p50: span("200us"), p999: span("150us"), ..given() }),
        "p50 200us conflicts with p999 150us: a lower percentile is never longer than a higher one; omit the first, or \
         raise the second"
    );
    let rate = |text: &str| Some(text.parse().expect("a rate"));
    let both = refused(RequirementOptions { rate_limit: rate("1G"), bandwidth: rate("2G"), ..given() });
    assert!(both.starts_with("rate-limit 1 Gbit/s conflicts with bandwidth 2 Gbit/s: "), "{both}");
    let device = vec![RequiredDevice::Net, RequiredDevice::Console];
    let iops = refused(RequirementOptions { iops: RequestRate::new(9), device, ..given() });
    assert_eq!(iops, "iops conflicts with device net,console: IOPS are measured at disks; add disk");
    let vlan = refused(RequirementOptions { vlan: true, device: vec![RequiredDevice::Disk], ..given() });
    assert!(vlan.starts_with("vlan conflicts with device disk: "), "{vlan}");
}

#[test]
fn zero_and_infinite_targets_are_refused() {
    let given = RequirementOptions::default;
    assert_eq!(refused(RequirementOptions { guests: Some(0), ..given() }), "invalid guests 0: use at least 1");
    let zero = refused(RequirementOptions { p99: span("0s"), ..given() });
    assert!(zero.starts_with("invalid p99 0s: "), "{zero}");
    for cores in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        let told = refused(RequirementOptions { host_cpu_at_most: Some(cores), ..given() });
        assert!(told.starts_with("invalid host-cpu-at-most ") && told.ends_with("e.g. 2.5"), "{told}");
    }
}

const FILE: &str = "# Web servers\nguests = 12\np99 = \"150us\"\nbandwidth = \"2G\"\nmigrate = \"live\"\n\
                    device = [\"net\"]\nisolation = \"complex\"\nhost-cpu-at-most = 3\n";

fn parsed(text: &str) -> Result<Requirements, String> {
    Requirements::parse(Source { name: "web.toml", text }).map_err(|error| error.to_string())
}

#[test]
fn a_file_has_the_same_keys_as_the_command_line() {
    let read = parsed(FILE).expect("a good file");
    let options = RequirementOptions {
        guests: Some(12),
        p99: span("150us"),
        bandwidth: Some("2G".parse().expect("a rate")),
        migrate: Some(RequiredMigration::Live),
        device: vec![RequiredDevice::Net],
        isolation: Some(Isolation::RootComplex),
        host_cpu_at_most: Some(3.0),
        ..RequirementOptions::default()
    };
    assert_eq!(read, Requirements::new(options).expect("good options"));
    for requirement in Requirement::VARIANTS {
        let known = parsed(&format!("{requirement} = []")).err();
        assert!(known.is_none_or(|error| !error.contains("unknown key")), "{requirement}");
    }
}

#[test]
fn an_error_in_a_file_names_its_line_and_key() {
    let refused = |text: &str| parsed(text).expect_err("refused");
    let unknown = refused("guests = 2\np9 = \"1ms\"\n");
    assert!(unknown.starts_with("web.toml:2: unknown key `p9`; did you mean "), "{unknown}");
    let wrong = refused("guests = 2\nmigrate = \"later\"\n");
    assert!(wrong.starts_with("web.toml:2: `migrate`: unknown name `later`"), "{wrong}");
    let unit = refused("\np99 = \"150\"\n");
    assert!(unit.starts_with("web.toml:2: ") && unit.contains("invalid duration `150`"), "{unit}");
    let zero = refused("p99 = \"1ms\"\nguests = 0\n");
    assert_eq!(zero, "web.toml:2: invalid guests 0: use at least 1");
    let clash = refused("bandwidth = \"2G\"\n\nrate-limit = \"1G\"\n");
    assert!(clash.starts_with("web.toml:3: rate-limit 1 Gbit/s conflicts with bandwidth 2 Gbit/s"), "{clash}");
}

#[test]
fn the_times_are_those_of_the_nic_unless_only_a_disk_is_required() {
    let device = |device: &[RequiredDevice]| {
        let options = RequirementOptions { device: device.to_vec(), ..RequirementOptions::default() };
        Requirements::new(options).expect("good options").measured_device()
    };
    assert_eq!(device(&[]), RequiredDevice::Net);
    assert_eq!(device(&[RequiredDevice::Disk, RequiredDevice::Net]), RequiredDevice::Net);
    assert_eq!(device(&[RequiredDevice::Disk]), RequiredDevice::Disk);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text: String) {
        let _ = parsed(&text);
    }

    #[test]
    fn parsed_values_are_finite_and_above_zero(guests: u32, micros in 0u64..10_000, cores: f64) {
        let text = format!("guests = {guests}\np99 = \"{micros}us\"\nhost-cpu-at-most = {cores:?}\n");
        if let Ok(read) = parsed(&text) {
            prop_assert!(read.guests() > 0);
            prop_assert!(read.targets().iter().all(|target| target.at.is_finite() && target.at > 0.0));
        }
    }
}
