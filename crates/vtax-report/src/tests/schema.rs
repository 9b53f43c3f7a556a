//! Check of exports against `docs/vtax.result.v1.schema.json`.

use jsonschema::Validator;
use serde_json::{Value, json};
use vtax_model::{
    endpoint::Ends,
    measurement::{PacketCounts, QuotaStops, ThreadPriority, WireCounts},
    run::{EndLocation, WaitFigures},
};
use vtax_stats::{Confidence, StoppingRule, Width};

use super::*;

fn validator() -> Validator {
    let text = include_str!("../../../../docs/vtax.result.v1.schema.json");
    let schema: Value = serde_json::from_str(text).expect("the schema is JSON");
    jsonschema::meta::validate(&schema).expect("the schema is a schema");
    jsonschema::draft202012::new(&schema).expect("the schema can be used")
}

fn exported(run: &Run) -> Value {
    serde_json::from_str(&json_of(run)).expect("JSON")
}

fn errors(validator: &Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn every_kind_of_document_keeps_to_the_schema() {
    let validator = validator();
    for run in RUNS.iter() {
        assert_eq!(errors(&validator, &exported(run)), Vec::<String>::new(), "{}", run.header.id);
    }
}

#[test]
fn documents_of_the_first_version_match_the_schema() {
    let old: Value = serde_json::from_str(include_str!("old/document.json")).expect("JSON");
    assert_eq!(errors(&validator(), &old), Vec::<String>::new());
}

#[test]
fn a_stopping_rule_keeps_to_the_schema() {
    let mut run = built_in("demo");
    let width = Width::try_from(5.0).expect("a width");
    run.header.stopping = Some(StoppingRule::new(Confidence::P99, width, 3, 30).expect("a rule"));
    let document = analyse(&run);
    assert_eq!(errors(&validator(), &exported(&run)), Vec::<String>::new());
    assert!(
        render(&document, &Options { detail: true, ..TERMINAL })
            .contains("3 to 30 rounds of 150 ms, until every 99 % interval")
    );
}

#[test]
fn packets_keep_to_the_schema_and_have_a_size_in_details() {
    let mut run = built_in("demo");
    let detail = Options { detail: true, ..TERMINAL };
    assert!(!render(&analyse(&run), &detail).contains("B/packet"), "nobody has counted them");
    for sample in &mut run.samples {
        let counts = PacketCounts::datagrams(1_000, 972, 28);
        let wire = Some(WireCounts { sent: counts, received: counts });
        sample.figures.ends.initiator.wire = wire;
        sample.figures.ends.responder.wire = wire;
        sample.figures.locations = Ends { initiator: EndLocation::Host, responder: EndLocation::Guest };
    }
    let document = analyse(&run);
    let summary = document.cells[0].summary.as_ref().expect("measured");
    let size = summary.wire_bytes.expect("known") as f64 / summary.packets.expect("known") as f64;
    assert!((size - 1_000.0).abs() < 1.0, "{size}");
    let text = render(&document, &detail);
    assert!(text.contains("B/packet") && text.contains(" 1000 "), "{text}");
    assert_eq!(errors(&validator(), &exported(&run)), Vec::<String>::new());
}

#[test]
fn delays_priorities_and_throttling_keep_to_the_schema() {
    let mut run = built_in("demo");
    for sample in &mut run.samples {
        sample.figures.ends.initiator.priority = Some(ThreadPriority::RealTime);
        sample.figures.ends.responder.priority = Some(ThreadPriority::Normal);
        sample.figures.ends.responder.throttling =
            Some(QuotaStops { periods: 54, throttled: 49, stopped_ns: 4_000_000_000 });
        sample.figures.ends.responder.waits = Some(WaitFigures { mean: 1_020.5, p50: 1_020 });
    }
    let text = render(&analyse(&run), &TERMINAL).replace('\n', " ");
    let samples = u64::try_from(run.samples.len()).expect("few");
    let told = format!(
        "THROTTLED: the CPU quota of its container stopped vtax's agent at the responder in {} of {}",
        49 * samples,
        54 * samples
    );
    assert!(text.contains(&told), "{told}: {text}");
    let document = exported(&run);
    assert_eq!(errors(&validator(), &document), Vec::<String>::new());
    let all = document["cells"].as_array().expect("cells").iter();
    let planted = all.filter(|cell| cell["taxes"][0]["planted"].is_number()).count();
    assert!(planted > 0, "responders that waited equally long: {document}");
}

#[test]
fn cycles_keep_to_the_schema_and_are_in_details() {
    let mut run = built_in("demo");
    for sample in &mut run.samples {
        let ends = [&mut sample.figures.cpu.initiator, &mut sample.figures.cpu.responder];
        for thread in ends.into_iter().flat_map(|end| &mut end.threads) {
            thread.cycles = Some(1_000_000);
        }
    }
    let document = analyse(&run);
    let text = render(&document, &Options { detail: true, ..TERMINAL });
    assert!(text.contains(" cycles ") && text.contains(" cycles/KB "), "{text}");
    assert_eq!(errors(&validator(), &exported(&run)), Vec::<String>::new());
    // A thread that didn't count makes the sum unknown.
    run.samples.iter_mut().for_each(|sample| sample.figures.cpu.initiator.threads[0].cycles = None);
    let text = render(&analyse(&run), &Options { detail: true, ..TERMINAL });
    assert!(!text.contains("cycles"), "{text}");
}

#[test]
fn guests_that_waited_keep_to_the_schema() {
    let run = built_in("demo");
    let mut document = analyse(&run);
    document.disturbance.guests_waited = Some(0.5);
    let exported = serde_json::from_str(&json_with(document, &run)).expect("JSON");
    assert_eq!(errors(&validator(), &exported), Vec::<String>::new());
}

#[test]
fn broken_documents_are_refused() {
    let validator = validator();
    let whole = exported(&built_in("demo"));
    let refused = |breaks: &str, edit: &dyn Fn(&mut Value)| {
        let mut broken = whole.clone();
        edit(&mut broken);
        assert_ne!(broken, whole, "{breaks}");
        assert!(!validator.is_valid(&broken), "not refused: {breaks}");
    };
    refused("another schema", &|d| d["schema"] = json!("vtax.result/v2"));
    refused("a field of no meaning", &|d| d["extra"] = json!(1));
    refused("a field of no meaning in a cell", &|d| d["cells"][0]["extra"] = json!(1));
    refused("no environment", &|d| drop(d.as_object_mut().expect("an object").remove("environment")));
    refused("an impossible MTU", &|d| d["cells"][0]["mtu"] = json!(67));
    refused("an unknown method", &|d| d["cells"][0]["method"] = json!("teleport"));
    refused("an RR cell without its sizes", &|d| {
        drop(d["cells"][0].as_object_mut().expect("a cell").remove("request_bytes"))
    });
    refused("a measured cell without figures", &|d| {
        drop(d["cells"][0].as_object_mut().expect("a cell").remove("summary"))
    });
    refused("a lower end alone", &|d| {
        let mean = d["cells"][0]["summary"]["transactions_per_s"].as_object_mut().expect("an estimate");
        mean.remove("high");
    });
    refused("a figure that is not a number", &|d| d["cells"][0]["samples"][0]["seconds"] = Value::Null);
    refused("a verdict of no meaning", &|d| d["cells"][1]["tax"]["verdict"] = json!("same"));
    refused("an option of no meaning", &|d| d["cells"][0]["options"] = json!({ "turbo": true }));
    refused("a direction of no meaning", &|d| {
        let stream = d["cells"].as_array_mut().expect("a list").iter_mut().find(|cell| cell["test"] == "stream");
        stream.expect("a stream")["direction"] = json!("up");
    });
    refused("an end without its warm-up", &|d| {
        let end = d["cells"][0]["samples"][0]["ends"]["initiator"].as_object_mut().expect("an end");
        end.remove("warmup");
    });
    refused("a share above one", &|d| d["cells"][0]["summary"]["lost_share"] = json!(1.5));
}

/// Unauthenticated peers, and CPU figures that are lower bounds.
#[test]
fn strangers_and_raised_cpu_times_are_reported_and_fit_the_schema() {
    let mut run = built_in("demo");
    let sample = &mut run.samples[0].figures;
    sample.ends.responder.strangers = 124;
    let machine = sample.cpu.initiator.machine;
    sample.cpu.initiator.machine = machine.at_least(machine.busy() * 2.0);
    let document = analyse(&run);
    assert_eq!(errors(&validator(), &exported(&run)), Vec::<String>::new());
    let text = render(&document, &TERMINAL);
    assert!(text.contains("UNAUTHENTICATED PEERS: ") && text.contains("(124)"), "{text}");
    assert!(text.contains("CPU LOWER BOUND: in 1 sample ") && !text.contains("CPU BY TICKS"), "{text}");
}
