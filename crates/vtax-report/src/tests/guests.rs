//! Runs with guests, as their host sees them.

use vtax_model::{
    guest::Accelerator,
    run::{ClockReading, GuestCpu, HostCpu},
};

use super::*;

/// Guests without and with vhost next to native, by one accelerator.
fn with_guests(accel: Accelerator) -> Run {
    let mut run = of_text(
        r#"
        id = "guests"
        title = "What a guest's network costs"
        baseline = "native"
        [matrix]
        methods = ["native", "paravirtual:userspace", "paravirtual:vhost"]
        mtu = [1500, 9000]
        transports = ["tcp"]
        tests = ["rr", "stream"]
        [plan]
        samples = 6
        duration = "500ms"
        "#,
    );
    let cells = run.header.study.cells.clone();
    for (index, sample) in run.samples.iter_mut().enumerate() {
        let row = cells[sample.cell].row;
        if row != vtax_synthetic::row("native") {
            let vhost = row == vtax_synthetic::row("paravirtual:vhost");
            sample.figures.host_cpu = Some(host(accel, vhost, index as u64));
        }
    }
    run
}

fn host(accel: Accelerator, vhost: bool, index: u64) -> HostCpu {
    let kvm = accel == Accelerator::Kvm;
    let clock = |drift: i64| ClockReading {
        at_ns: (index + 1) * 1_000_000_000,
        ahead_ns: drift * index as i64,
        uncertainty_ns: 200_000,
    };
    let guest = |name: &str, drift| GuestCpu {
        name: name.parse().expect("a name"),
        pid: 4711,
        serves: false,
        accel,
        guest: if kvm { 0.2 } else { 0.43 },
        vhost: if vhost { 0.11 } else { 0.0 },
        iothread: 0.0,
        daemon: 0.0,
        qemu: if vhost { 0.002 } else { 0.19 },
        kernel: Some(0.01),
        exits: kvm.then_some(21_000 + index),
        clock: Some(clock(drift)),
    };
    HostCpu {
        seconds: 0.46,
        whole_sample: false,
        softirq: 0.03,
        irq: 0.01,
        all_guests: if kvm { 0.4 } else { 0.0 },
        interrupts: 9_000 + 10 * index,
        guests: vec![guest("sut", 3_000), guest("peer", -350_000)],
        relays: Vec::new(),
    }
}

/// Every kind of run that is shown here.
pub(super) fn all() -> Vec<Run> {
    vec![with_guests(Accelerator::Tcg), with_guests(Accelerator::Kvm)]
}

/// From its title to the next one.
fn shown(run: &Run, options: &Options) -> String {
    let text = render(&analyse(run), &Options { detail: true, ..*options });
    let begin = text.find("Host CPU time").expect("the section");
    let end = text[begin..].find("TCP: details").expect("the next section");
    text[begin..begin + end].trim_end_matches(['#', ' ', '\n']).to_owned()
}

#[test]
fn guests_cost_their_host() {
    snapshot("guests_tcg", shown(&with_guests(Accelerator::Tcg), &TERMINAL));
    snapshot("guests_kvm", shown(&with_guests(Accelerator::Kvm), &TERMINAL));
    snapshot("guests_markdown", shown(&with_guests(Accelerator::Kvm), &MARKDOWN));
}

#[test]
fn only_a_clock_that_drifts_is_reported() {
    let text = shown(&with_guests(Accelerator::Tcg), &Options { width: 1000, ..TERMINAL });
    assert!(text.contains("The clock of guest peer is 350 ppm") && text.contains("slow relative to"), "{text}");
    assert!(!text.contains("guest sut"), "3 ppm are nothing: {text}");
}

#[test]
fn guests_that_wait_for_a_cpu_are_crowded_and_not_disturbed() {
    let mut document = analyse(&with_guests(Accelerator::Kvm));
    let told = |document: &ResultDocument| render(document, &Options { width: 1000, detail: true, ..TERMINAL });
    document.disturbance.guests_waited = Some(0.04);
    assert!(
        told(&document).contains("; guests waited for a CPU 4.0 % of the time")
            && !told(&document).contains("CPU CONTENTION")
    );
    document.disturbance.guests_waited = Some(0.565);
    let text = told(&document);
    assert!(text.contains("CPU CONTENTION: guests waited 56.5 % of the time") && !text.contains("BUSY HOST"), "{text}");
}

#[test]
fn without_guests_there_is_no_such_section() {
    let text = render(&analyse(&built_in("demo")), &TERMINAL);
    assert!(!text.contains("Host CPU time"), "{text}");
}

#[test]
fn whole_samples_are_reported() {
    let mut run = with_guests(Accelerator::Tcg);
    assert!(!shown(&run, &TERMINAL).contains("Whole samples"));
    run.samples
        .iter_mut()
        .filter_map(|sample| sample.figures.host_cpu.as_mut())
        .for_each(|host| host.whole_sample = true);
    assert!(shown(&run, &TERMINAL).contains("Whole samples were observed"));
}
