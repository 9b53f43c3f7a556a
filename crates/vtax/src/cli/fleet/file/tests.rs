use vtax_fleet::{DirectedPair, EndId, MeshStage};

use super::*;

fn header() -> MeshHeader {
    MeshHeader {
        schema: MeshHeader::SCHEMA.into(),
        ends: vec!["a".into(), "b".into(), "c".into()],
        uplinks: vec![None; 3],
        rails: vec![None; 3],
        rounds: 3,
        all_rounds: 3,
        waves: Some(3),
        show: 0.1,
        seed: 7,
    }
}

fn sample(wave: u32, from: usize, to: usize) -> MeshSample {
    let pair = DirectedPair { from: EndId(from), to: EndId(to) };
    MeshSample { stage: MeshStage::Rounds, wave, pair, rates: vec![1e9, 2e9], failure: None, lost: Vec::new() }
}

#[test]
fn samples_are_read_as_they_were_stored() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut file = MeshFile::create(folder.path(), &header()).expect("created");
    let failed =
        MeshSample { rates: Vec::new(), failure: Some("gone".into()), lost: vec![EndId(2)], ..sample(1, 2, 1) };
    let samples = [sample(0, 0, 1), sample(0, 1, 0), failed];
    samples.iter().try_for_each(|sample| file.append(sample)).expect("stored");
    file.finish().expect("stored");
    assert_eq!(read(&file.path).expect("as written"), (header(), samples.to_vec()));
}

#[test]
fn a_line_that_was_cut_is_omitted_and_any_other_damage_is_refused() {
    let path = Path::new("mesh.jsonl");
    let whole = line(&header()) + &line(&sample(0, 0, 1));
    let cut = whole.clone() + "{\"stage\":\"rou";
    assert_eq!(parsed(&cut, path).expect("but for the last"), (header(), vec![sample(0, 0, 1)]));
    let refused = |text: &str| parsed(text, path).expect_err("damaged").to_string();
    assert!(refused(&(whole.clone() + "{}\n")).starts_with("mesh.jsonl:3: missing field"));
    let stranger = refused(&(whole + &line(&sample(0, 0, 9))));
    assert_eq!(stranger, "mesh.jsonl:3: a sample of an end that the first line doesn't list");
    assert!(refused("").contains("not a file of `vtax fleet mesh`"));
    let other = MeshHeader { schema: "other".into(), ..header() };
    assert!(refused(&line(&other)).contains("its schema is not vtax.mesh-samples/v1"));
}
