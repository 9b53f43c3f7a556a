//! `vtax size`: refused loads, and costs that were not measured.

use super::bench::Bench;

#[test]
fn a_load_that_contradicts_itself_is_refused() {
    let bench = Bench::new();
    for (words, told) in [
        ("size", "nothing to size: specify a load, e.g. --net 10G --pps 1.5M or --iops 40k"),
        ("size --pps 1.5M", "1.5M packets/s without a bit rate"),
        ("size --net 10G --pps 50M", "are 25.0 bytes each"),
        ("size --block 8KiB", "--block 8 KiB without an I/O rate"),
        ("size --net 10G --p99 0us", "--p99 cannot be 0"),
        ("size --iops many", "invalid I/O rate `many`"),
        ("size --net 10G --migrate 2", "e.g. 2/day"),
        ("size --net 10G --guests 12", "e.g. 12,2,4GiB"),
        ("size --net 10G --method bridge", "no costs are known"),
        ("size --net 10G --to ldm:mars", "--measure"),
        ("size --net 10G --measure --dry-run", "--to ldm:mars"),
        ("size --iops 40k --measure --dry-run", "--disk ldm:mars/data"),
        ("size --consoles 4 --measure --dry-run", "a load of networks or disks"),
        ("size --net 10G --server emulated", "omit --server"),
        ("size prove", "nothing to size"),
        ("size prove --net 10G --iops 4k --cores 1", "--to ldm:mars"),
        ("size prove --net 10G --cores 1", "--to ldm:mars"),
        ("size prove --iops 4k --cores 1", "--disk ldm:mars/data"),
        ("size prove --net 10G --cores 0 --to ldm:mars", "at least 1 core"),
        ("size prove --net 10G --cores 70000 --to ldm:mars", "70000 cores for the I/O side leave none"),
        ("size prove --last --net 10G", "cannot be used with"),
        ("size prove --last --to ldm:mars", "no size was proposed yet"),
        ("size --net 10G prove --last", "cannot be used with"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let refused = bench.refused(&words);
        assert!(refused.contains(told), "{words:?}: {refused}");
    }
}

#[test]
fn an_unknown_cost_is_not_a_figure() {
    let bench = Bench::new();
    let prove = ["size", "prove", "--net", "10G", "--to", "ldm:mars"];
    for words in [&["size", "--net", "10G"][..], &["size", "--iops", "40k", "--json"], &prove] {
        let output = bench.vtax(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{told}");
        assert!(output.stdout.is_empty(), "{words:?} printed data");
        assert!(
            told.contains("has not been measured") && told.contains("repeat `vtax size` with e.g. --measure --"),
            "{told}"
        );
        assert!(told.contains("cost-not-measured"), "{told}");
    }
}

#[test]
fn the_measurements_are_listed_without_being_taken() {
    let bench = Bench::new();
    let words = "size --net 1G --pps 150k --iops 40k --measure --to ldm:mars --disk ldm:mars/data --dry-run";
    let words: Vec<&str> = words.split(' ').collect();
    let told = bench.printed(&words);
    assert_eq!(told.lines().filter(|line| line.starts_with("vtax measure --to ldm:mars --test udp-stream")).count(), 5);
    assert_eq!(told.lines().filter(|line| line.starts_with("vtax measure --disk ldm:mars/data")).count(), 2);
    assert!(told.ends_with("about 2 min 50 s in all\n"), "{told}");
    let json = bench.printed(&[&words[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((json["commands"].as_array().map(Vec::len), json["seconds"].as_u64()), (Some(7), Some(170)));
}

#[test]
fn the_runs_of_a_proof_are_listed_with_their_cpus() {
    let bench = Bench::new();
    let words = "size prove --net 1G --pps 150k --p99 200us --cores 1 --to ldm:mars --dry-run";
    let words: Vec<&str> = words.split(' ').collect();
    let told = bench.printed(&words);
    let runs = told.lines().filter(|line| line.starts_with("  vtax measure --to ldm:mars --test udp-rr"));
    assert_eq!(runs.count(), 3, "{told}");
    assert!(told.contains("85 % on 1 core, CPUs ") && told.contains("about 1 min 00 s in all\n"), "{told}");
    assert!(told.contains("one core is the smallest size"), "{told}");
    let json = bench.printed(&[&words[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((json["runs"].as_array().map(Vec::len), json["seconds"].as_u64()), (Some(3), Some(60)));
}

#[test]
fn a_proof_without_guests_confines_nothing() {
    let bench = Bench::new();
    let output = bench.vtax(&["size", "prove", "--net", "1G", "--cores", "1", "--to", "zone:none"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("no-io-side") && told.contains("no guest none runs"), "{told}");
}
