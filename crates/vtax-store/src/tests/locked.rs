//! Waiting for a database that another process has locked.

use std::{sync::Mutex, time::Instant};

use super::*;

const STORE: &str = "VTAX_TEST_LOCKED_STORE";
const LOCK: &str = "VTAX_TEST_LOCK";

/// Reports of waits in this process, where other tests may wait too.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Process that holds a lock until it is dropped.
struct Holder(Child);

impl Holder {
    /// Starts this test program again, and waits until it has the lock that these statements take.
    fn new(dir: &Path, lock: &str) -> Holder {
        let (_, module) = module_path!().split_once("::").expect("the test program's name, then the module");
        let mut program = Command::new(std::env::current_exe().expect("a test program"));
        program.args(["--exact", &format!("{module}::holds_a_lock_until_its_input_ends"), "--ignored", "--nocapture"]);
        program.env(STORE, dir).env(LOCK, lock).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Holder(program.spawn().expect("starts"));
        let told = BufReader::new(holder.0.stdout.take().expect("a pipe"));
        assert!(told.lines().map_while(Result::ok).any(|line| line == "locked"), "it has the lock");
        holder
    }

    fn is_named(&self, text: &str) -> bool {
        text.contains(&format!("locked by pid {}, `", self.0.id()))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().expect("ours");
        self.0.wait().expect("ours");
    }
}

#[test]
#[ignore = "the other process of the tests of this file, which start it"]
fn holds_a_lock_until_its_input_ends() {
    let [dir, lock] = [STORE, LOCK].map(|name| std::env::var(name).expect("started by another test"));
    let connection = rusqlite::Connection::open(Path::new(&dir).join("results.db")).expect("opens");
    connection.execute_batch(&lock).expect("nobody else has it");
    let mut out = std::io::stdout();
    writeln!(out, "\nlocked").and_then(|()| out.flush()).expect("a reader");
    std::io::stdin().lines().for_each(drop);
}

fn told_of(holder: &Holder) -> Vec<String> {
    vtax_sys::lock::tell_waits(|wait| TOLD.lock().expect("nobody panics with it").push(wait.to_string()));
    let told = TOLD.lock().expect("nobody panics with it");
    told.iter().filter(|told| holder.is_named(told)).cloned().collect()
}

/// It waited ten seconds without a message, and then named no process.
#[test]
fn a_writer_that_waits_names_the_process_it_waits_for() {
    let dir = folder();
    let (_store, mut writer) = new_run(dir.path(), "demo-1");
    let holder = Holder::new(dir.path(), "BEGIN IMMEDIATE");
    assert_eq!(told_of(&holder), [""; 0]);
    let begun = Instant::now();
    let refused = writer.samples(&[sample(0, Arm::A, 1)]).expect_err("it is locked");
    assert!((9..60).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    let told = told_of(&holder);
    assert!(told.len() == 1 && told[0].contains("results.db"), "{told:?}");
    assert!(matches!(refused, StoreError::Busy { .. }) && holder.is_named(&refused.to_string()), "{refused}");
    drop(holder);
    writer.samples(&[sample(0, Arm::A, 1)]).expect("nobody has it any more");
}

/// The mode of a new database isn't changed while another process uses it, and an older one isn't read.
#[test]
fn one_that_waits_for_a_database_without_a_log_names_the_process_too() {
    let dir = folder();
    drop(rusqlite::Connection::open(dir.path().join("results.db")).expect("new"));
    let holder = Holder::new(dir.path(), "BEGIN EXCLUSIVE; CREATE TABLE t (x)");
    told_of(&holder);
    let refused = Store::open(dir.path()).expect_err("it is locked");
    assert!(holder.is_named(&refused.to_string()), "{refused}");
    assert_eq!(told_of(&holder).len(), 1);
}

/// `results remove` and `prune` empty the log, which a reader prevents.
#[test]
fn one_that_empties_the_log_names_the_reader_that_keeps_it() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    let holder = Holder::new(dir.path(), "BEGIN; SELECT count(*) FROM run; SELECT * FROM run");
    told_of(&holder);
    writer.samples(&[sample(0, Arm::A, 1)]).expect("a reader doesn't block the writer");
    let _ = store.empty_log();
    assert_eq!(told_of(&holder).len(), 1);
}

/// Closing any descriptor of a file releases all locks of the process on it (fcntl(2)). Another program would then
/// remove the log when it closes the database, and all further samples would be lost.
#[test]
fn further_connections_of_a_process_leave_its_lock_to_it() {
    /// Byte that each user of a database locks for reading (`SHARED_FIRST` of SQLite's `os.h`).
    const SHARED: u64 = (1 << 30) + 2;
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    let further = store.try_clone().expect("there");
    let file = std::fs::File::open(dir.path().join("results.db")).expect("there");
    let is_locked = vtax_sys::lock::is_byte_locked(&file, SHARED).expect("a regular file");
    assert!(is_locked, "the log could be removed");
    writer.samples(&[sample(0, Arm::A, 1)]).expect("nobody has it");
    assert_eq!(further.list().expect("readable").len(), 1);
}
