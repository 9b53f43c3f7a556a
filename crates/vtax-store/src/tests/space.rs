//! Full disks, and release of space.

use super::*;
use crate::lock::RunLock;

#[test]
fn a_full_disk_is_reported_and_stored_samples_stay() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    let pages: i64 = writer.connection.pragma_query_value(None, "page_count", |row| row.get(0)).expect("pages");
    writer.connection.pragma_update(None, "max_page_count", pages + 8).expect("limited");
    let landed = (1..10_000).take_while(|round| writer.samples(&[sample(0, Arm::A, *round)]).is_ok()).count();
    assert!((1..9_999).contains(&landed), "{landed}");
    let error = writer.samples(&[sample(0, Arm::A, 20_000)]).expect_err("full");
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    assert_eq!(store.load("demo-1").expect("there").samples.len(), landed);
    writer.connection.pragma_update(None, "max_page_count", 1_000_000).expect("lifted");
    writer.samples(&[sample(0, Arm::A, 20_000)]).expect("there is space again");
}

#[test]
fn a_run_is_removed_in_parts_whose_log_is_short_and_the_file_shrinks() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    let samples: Vec<_> = (1..=2_000).map(|round| sample(0, Arm::A, round)).collect();
    writer.samples(&samples).expect("there is space");
    drop(writer);
    store.empty_log().expect("nobody else has it open");
    let size = |name: &str| std::fs::metadata(dir.path().join(name)).expect("a file").len();
    let before = size("results.db");
    assert!(before > 1 << 20, "{before}");
    let lock = RunLock::take(&store.place, "demo-1").expect("nobody writes it");
    assert!(matches!(store.remove_in_parts("demo-1"), Err(StoreError::InUse { .. })));
    drop(lock);
    store.remove_in_parts("demo-1").expect("it is there");
    store.empty_log().expect("nobody else has it open");
    assert!(size("results.db") < before / 4, "{} of {before}", size("results.db"));
    assert!(store.list().expect("readable").is_empty());
}
