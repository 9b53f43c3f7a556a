use vtax_fleet::{DirectedPair, EndId, HostList, MeshStage, PairTest, PairTestKind};
use vtax_model::{located::Source, units::Span};

use super::*;

fn header() -> MeshHeader {
    let list = HostList::parse(Source { name: "hosts", text: "a\nb\nc vtax_uplink=leaf1\n" }).expect("three hosts");
    MeshHeader {
        schema: MeshHeader::SCHEMA.into(),
        test: PairTest { kind: PairTestKind::TcpStream, duration: Span::from_millis(400), ports: 2 },
        ends: list.ends().expect("three hosts"),
        limits: list.limits,
        excluded: Vec::new(),
        rounds: 3,
        all_rounds: 3,
        waves: Some(3),
        show: 0.1,
        seed: 7,
    }
}

fn sample(wave: u32, from: usize, to: usize) -> MeshSample {
    let pair = DirectedPair { from: EndId(from), to: EndId(to) };
    MeshSample { stage: MeshStage::Rounds, wave, pair, values: vec![1e9, 2e9], failure: None, lost: Vec::new() }
}

#[test]
fn samples_are_read_as_they_were_stored() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut file = MeshFile::create(folder.path(), &header()).expect("created");
    let failed =
        MeshSample { values: Vec::new(), failure: Some("gone".into()), lost: vec![EndId(2)], ..sample(1, 2, 1) };
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
    assert_eq!(stranger, "mesh.jsonl:3: a sample of an endpoint that the first line does not list");
    assert!(refused("").contains("not a file of `vtax fleet mesh`"));
    let other = MeshHeader { schema: "other".into(), ..header() };
    assert!(refused(&line(&other)).contains("its schema is not vtax.mesh-samples/v1"));
}

/// A killed vtax has written a partial line.
#[test]
fn a_mesh_is_continued_after_its_last_whole_line_and_by_one_process() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut file = MeshFile::create(folder.path(), &header()).expect("created");
    file.append(&sample(0, 0, 1)).expect("stored");
    file.file.write_all(b"{\"stage\":\"rou").expect("stored");
    let name = file.name();
    let busy = MeshFile::resume(folder.path(), &name).err().expect("in use").to_string();
    assert!(busy.contains("another vtax is measuring this mesh"), "{busy}");
    drop(file);
    let (mut file, found, samples) = MeshFile::resume(folder.path(), "last").expect("continued");
    assert_eq!((found, samples), (header(), vec![sample(0, 0, 1)]));
    file.append(&sample(0, 1, 0)).expect("stored");
    assert_eq!(read(&file.path).expect("whole lines").1, [sample(0, 0, 1), sample(0, 1, 0)]);
}

#[test]
fn a_mesh_is_found_by_its_name_or_the_beginning_of_it() {
    let folder = tempfile::tempdir().expect("a directory");
    let found = |mesh: &str| find(folder.path(), mesh).map(|path| name(&path)).map_err(|error| error.to_string());
    assert!(found("last").expect_err("none").contains("vtax fleet list"));
    let meshes = folder.path().join("fleet");
    fs::create_dir(&meshes).expect("a directory");
    for name in ["mesh-20260102-000000-01.jsonl", "mesh-20260103-000000-02.jsonl", "mesh-20260103-000001-03.jsonl", "x"]
    {
        fs::write(meshes.join(name), "").expect("a file");
    }
    assert_eq!(found("last"), Ok("mesh-20260103-000001-03".to_owned()));
    assert_eq!(found("mesh-20260102"), Ok("mesh-20260102-000000-01".to_owned()));
    assert!(found("mesh-20260103").expect_err("two").contains("mesh-20260103-000000-02, mesh-20260103-000001-03"));
    assert!(found("mesh-2025").is_err());
    assert_eq!(find(folder.path(), "./x.jsonl").expect("a path"), Path::new("./x.jsonl"));
}
