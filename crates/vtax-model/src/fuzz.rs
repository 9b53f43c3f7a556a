//! Fuzz targets: parsers of users' texts, and of records from agents and stores.

use std::{
    fmt::{Debug, Display},
    str::FromStr,
};

use serde::{Serialize, de::DeserializeOwned};
use vtax_fuzz::{fuzz, fuzz_text};
use vtax_stats::{Confidence, Width};

use crate::{
    analysis::analyse,
    disk::DiskTest,
    endpoint::{Control, Endpoint, Pinning, Pins},
    guest::{Flavour, Mac},
    located::{FileError, Source},
    measurement::EndReport,
    options::{Burst, CongestionControl, Dscp, RequestRate, Segments},
    published::Published,
    result::ResultDocument,
    run::{Difference, Figures, Run, Sample, SampleReading},
    server::ServerSpec,
    study::{Row, Study},
    topology::{Cable, Name, NicName, Topology},
    units::{BitRate, ByteSize, Mtu, Span},
    workload::{TestSpec, Warmup},
};

/// A parsed value, written and parsed again, is the same.
#[track_caller]
fn survives<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        let written = read.to_string();
        assert_eq!(written.parse().ok(), Some(read), "{text:?} is written as {written:?}");
    }
}

#[track_caller]
fn survives_json<T: Serialize + DeserializeOwned + PartialEq + Debug>(read: &T) {
    let written = serde_json::to_string(read).expect("it can be written");
    let again = serde_json::from_slice::<T>(written.as_bytes()).unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(again, *read, "{written}");
}

/// Computed values may contain figures that are not numbers, which JSON lacks. They can still be read.
#[track_caller]
fn is_readable<T: Serialize + DeserializeOwned>(computed: &T) {
    let written = serde_json::to_string(computed).expect("it can be written");
    let read = serde_json::from_slice::<T>(written.as_bytes());
    assert!(read.is_ok(), "{}: {written}", read.err().map(|error| error.to_string()).unwrap_or_default());
}

/// An error names a line of the text.
#[track_caller]
fn is_located<T>(text: &str, read: Result<T, FileError>) -> Option<T> {
    let is_good = |error: &FileError| (1..=1 + text.matches('\n').count()).contains(&error.line);
    read.inspect_err(|error| assert!(is_good(error) && !error.message.is_empty(), "{error:?}")).ok()
}

fn source(text: &str) -> Source<'_> {
    Source { name: "a.toml", text }
}

fn studies() -> Vec<&'static str> {
    let own = [
        include_str!("../tests/data/plain.toml"),
        include_str!("../tests/data/fuzz/study.toml"),
        include_str!("../tests/data/fuzz/sweep.toml"),
    ];
    Study::BUILT_IN.iter().map(|(_, text)| *text).chain(own).collect()
}

#[test]
fn fuzz_studies() {
    fuzz_text("studies", &studies(), |text| {
        let study = is_located(text, Study::parse(source(text)))?;
        survives_json(&study);
        for (cell, plan) in study.cells.iter().filter_map(|cell| Some((cell, study.plan_of(cell.instrument, false)?))) {
            let _ = (cell.net().map(|net| net.spec(&plan).check(net.mtu)), cell.block());
        }
        crate::cell::round_order(&study.cells, study.baseline, 1, 1);
        Some(())
    });
}

#[test]
fn fuzz_labs() {
    let seeds = [include_str!("../tests/data/fuzz/lab.toml"), include_str!("../tests/data/fuzz/guests.toml")];
    fuzz_text("labs", &seeds, |text| {
        crate::study::is_lab_file(text);
        survives_json(&is_located(text, Topology::parse(source(text)))?);
        Some(())
    });
}

#[test]
fn fuzz_endpoint_files() {
    let seed = include_str!("../tests/data/fuzz/endpoints.toml");
    fuzz_text("endpoint-files", &[seed], |text| {
        survives_json(&is_located(text, Endpoint::parse_file(source(text)))?);
        Some(())
    });
}

#[test]
fn fuzz_published() {
    let seeds = [
        include_str!("../data/published/ip-instances.toml"),
        include_str!("../data/published/sparc-t7-1.toml"),
        include_str!("../data/published/vmdq.toml"),
    ];
    let study = Study::built_in("sparc-t7-1").expect("built in");
    fuzz_text("published", &seeds, move |text| {
        let published = is_located(text, source(text).parse::<Published>())?;
        study.cells.iter().for_each(|cell| drop(published.figures(cell)));
        Some(())
    });
}

#[test]
fn fuzz_words() {
    let seeds = [
        "1.5MiB",
        "9000",
        "250ms",
        "2.5 Gbit/s",
        "web-1",
        "0000:3b:00.1,eth1",
        "eth0,eth1",
        "af31",
        "cubic",
        "poisson:1000/s",
        "1000/s",
        "16",
        "8",
        "until-steady:30s",
        "5%",
        "1us",
        "52:54:00:12:34:56",
        "paravirtual:vhost",
        "bridge",
        "emulated:nics=2,memory=2GiB",
        "ssh:root@vm1",
        "zone:lab/web",
        "libvirt:me@my vm",
        "auto",
        "none",
        "0-3,8:2",
        "epoll",
        "sequential:reads=60,block=8KiB,engine=libaio,direct=off,ramp=1m",
    ];
    fuzz_text("words", &seeds, |text| {
        survives::<ByteSize>(text);
        survives::<Mtu>(text);
        survives::<Span>(text);
        survives::<BitRate>(text);
        survives::<Name>(text);
        survives::<NicName>(text);
        survives::<Cable>(text);
        survives::<Dscp>(text);
        survives::<CongestionControl>(text);
        survives::<RequestRate>(text);
        survives::<Warmup>(text);
        survives::<Difference>(text);
        survives::<Mac>(text);
        survives::<Flavour>(text);
        survives::<Row>(text);
        survives::<ServerSpec>(text);
        survives::<Control>(text);
        survives::<Pinning>(text);
        survives::<Pins>(text);
        survives::<Confidence>(text);
        survives::<Width>(text);
        survives::<DiskTest>(text);
        let _ = (text.parse::<Burst>(), text.parse::<Segments>());
        Some(())
    });
}

/// A small run: two rows of one test in four rounds.
fn run() -> Run {
    let mut run = crate::analysis::tests::demo_run();
    let kept: Vec<usize> = (0..run.header.study.cells.len()).filter(|cell| *cell < 3).collect();
    run.samples.retain(|sample| kept.contains(&sample.cell) && sample.round <= 4);
    run
}

/// The result with its samples, as it is exported.
fn document(run: &Run) -> ResultDocument<Vec<Sample>> {
    let Ok(document) = analyse(run);
    let of = |cell: usize| run.samples.iter().filter(move |sample| sample.cell == cell).cloned().collect();
    document.with_samples(|cell, _| of(cell))
}

/// A store's rows, or an interrupted run that is handed to a server: whatever they contain, they can be analysed.
#[test]
fn fuzz_runs() {
    fuzz("runs", &[serde_json::to_string(&run()).expect("a run")], |bytes| {
        let run = serde_json::from_slice::<Run>(bytes).ok()?;
        survives_json(&run);
        is_readable(&document(&run));
        Some(())
    });
}

#[test]
fn fuzz_result_documents() {
    fuzz("result-documents", &[serde_json::to_string(&document(&run())).expect("a document")], |bytes| {
        let document = serde_json::from_slice::<ResultDocument<Vec<Sample>>>(bytes).ok()?;
        survives_json(&document);
        let readings = |_, samples: Vec<Sample>| samples.iter().map(SampleReading::of).collect::<Vec<_>>();
        let _ = document.with_samples(readings).instruments();
        Some(())
    });
}

/// Reports of two agents on a test: one text each, preceded by the request.
#[test]
fn fuzz_reports() {
    type Reported = (TestSpec, EndReport, EndReport);
    let study = Study::built_in("sparc-t7-1").expect("built in");
    let seed = |cell: &crate::cell::Cell| {
        let report = EndReport { seconds: 1.0, transactions: 9, bytes: 900, ..EndReport::default() };
        let reported: Reported = (cell.net().expect("of a network").spec(&study.plan), report.clone(), report);
        serde_json::to_string(&reported).expect("reports")
    };
    let seeds: Vec<String> = study.cells.iter().take(40).step_by(8).map(seed).collect();
    fuzz("reports", &seeds, |bytes| {
        let (spec, initiator, responder) = serde_json::from_slice::<Reported>(bytes).ok()?;
        survives_json(&(spec, initiator.clone(), responder.clone()));
        let figures = Figures::join(&spec, true, &initiator, &responder);
        let kind = spec.workload.kind();
        let _ = (figures.is_empty(kind), figures.rate());
        is_readable(&figures);
        Some(())
    });
}
