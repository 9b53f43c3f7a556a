//! Runs of disks: no word of networks in them, and their own tables, page and CSV.

use vtax_model::{
    guest::Accelerator,
    run::{GuestCpu, HostCpu},
};
use vtax_synthetic::{disks, files};

use super::*;

#[test]
fn tables_of_disks() {
    let document = analyse(&disks());
    for width in [80, 120] {
        let text = render(&document, &Options { width, ..TERMINAL });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        snapshot(&format!("disks_{width}"), text);
    }
    snapshot("disks_detail", render(&document, &Options { detail: true, explain: true, bars: true, ..TERMINAL }));
    snapshot("disks_markdown", render(&document, &MARKDOWN));
}

#[test]
fn cached_disks_are_marked() {
    let text = render(&analyse(&files()), &TERMINAL);
    assert!(text.contains("! CACHED: ") && text.contains("disk:/dev/shm/b.img [1]"), "{text}");
    snapshot("disks_cached", text);
}

#[test]
fn a_run_of_one_disk_tells_its_figures() {
    let mut run = files();
    run.header.study.rows.truncate(1);
    run.header.study.cells.truncate(1);
    run.samples.retain(|sample| sample.cell == 0);
    let text = render(&analyse(&run), &TERMINAL);
    assert!(text.contains("I/Os/s"), "{text}");
    snapshot("disks_one", text);
}

#[test]
fn csv_of_disks() {
    let text = render(&analyse(&disks()), &Options { format: Format::Csv, ..TERMINAL });
    snapshot("disks_csv", text.lines().take(4).collect::<Vec<_>>().join("\n"));
}

#[test]
fn no_word_of_networks_is_in_a_report_of_disks() {
    const WORDS: [&str; 14] = [
        "round trip",
        "rtt",
        "mb/s",
        "both ends",
        "initiator",
        "responder",
        "mtu",
        "packet",
        "tcp",
        "payload",
        "mbps",
        "wire",
        "link",
        "stream",
    ];
    for run in [disks(), files()] {
        let document = analyse(&run);
        let all = Options { detail: true, explain: true, bars: true, ..TERMINAL };
        let mut texts = vec![render(&document, &all), render(&document, &MARKDOWN), in_brief(&document)];
        texts.push(render(&document, &Options { format: Format::Csv, ..TERMINAL }));
        texts.push(compare(&document, &document, None).render(&TERMINAL).plain());
        for (text, word) in texts.iter().flat_map(|text| WORDS.iter().map(move |word| (text, word))) {
            // Throughput of disks is in megabytes.
            let text = text.replace("MB/s", "");
            let found = text.lines().find(|line| line.to_lowercase().contains(word));
            assert_eq!(found, None, "{word}");
        }
    }
}

#[test]
fn a_page_of_disks_draws_the_three_figures_over_the_threads() {
    let charts = charts(&analyse(&disks()));
    let of_threads = charts.iter().filter(|chart| matches!(chart, Chart::Scaling(_)));
    let titles: Vec<&str> = of_threads.map(|chart| chart.heading().title.as_str()).collect();
    insta::assert_snapshot!(titles.join("\n"));
}

/// The work of an iothread and a storage daemon is reported where there is one; for the host's own disk, that of fio
/// itself.
#[test]
fn the_hosts_cpu_time_is_split() {
    let mut run = disks();
    let cells = run.header.study.cells.clone();
    for sample in &mut run.samples {
        let row = cells[sample.cell].row.to_string();
        let guest = GuestCpu {
            name: "sut".into(),
            pid: 4711,
            serves: false,
            accel: Accelerator::Kvm,
            guest: 0.2,
            vhost: 0.0,
            iothread: if row.contains("iothread") { 0.05 } else { 0.0 },
            daemon: if row.starts_with("vhost-user") { 0.06 } else { 0.0 },
            qemu: 0.03,
            kernel: Some(0.02),
            exits: Some(1000),
            clock: None,
        };
        sample.figures.host_cpu = Some(HostCpu {
            seconds: 0.8,
            whole_sample: false,
            softirq: 0.01,
            irq: 0.01,
            all_guests: 0.2,
            interrupts: 5000,
            guests: if row == "native-disk" { Vec::new() } else { vec![guest] },
            relays: Vec::new(),
        });
    }
    let document = analyse(&run);
    let text = render(&document, &Options { detail: true, width: 120, ..TERMINAL });
    let section = text.split_once("Host CPU time\n").expect("a section").1;
    snapshot("disks_host_cpu", section.split_once("\n\nFor a guest's disk").expect("its words").0.to_owned());
    let chart = charts(&document).into_iter().find(|chart| matches!(chart, Chart::Stacked(_)));
    let Some(Chart::Stacked(stacked)) = chart else { panic!("there is one") };
    assert_eq!(stacked.parts.first().map(String::as_str), Some("fio"));
}
