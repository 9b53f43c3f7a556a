use std::{fs, os::unix::fs::PermissionsExt, thread};

use tempfile::TempDir;
use vtax_model::{domain::CpuDemand, topology::Name, units::ByteSize};

use super::*;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn store() -> (TempDir, DomainStore) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = DomainStore::new(&folder.path().join("ldm"));
    (folder, store)
}

#[test]
fn requested_changes_are_kept_and_refused_ones_are_not() {
    let (_folder, store) = store();
    let locked = store.lock().expect("it is free");
    locked.edit("sun", |all| all.add_domain(&name("mars"))).expect("it is new");
    locked.edit("sun", |all| all.set_cpus(&name("mars"), CpuDemand::Cores(8))).expect("it is possible");
    let kept = store.read("other").expect("it can be read");
    let refused = locked.edit("sun", |all| {
        all.set_memory(&name("mars"), ByteSize(8 << 30))?;
        all.add_domain(&name("mars"))
    });
    assert!(matches!(refused, Err(EditError::Domain(DomainError::Exists { .. }))), "{refused:?}");
    assert_eq!(store.read("other").expect("it can be read"), kept);
    assert_eq!(kept.configuration.host, "sun");
    let left: Vec<_> = fs::read_dir(store.folder()).expect("there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "the state and the lock: {left:?}");
}

#[test]
fn configurations_are_saved_under_names() {
    let (_folder, store) = store();
    let locked = store.lock().expect("it is free");
    let initial: ConfigName = "initial".parse().expect("a name");
    locked.edit("sun", |all| all.add_domain(&name("mars"))).expect("it is new");
    locked.save("sun", &initial).expect("it is new");
    assert!(matches!(locked.save("sun", &initial), Err(DomainStoreError::SavedExists { .. })));
    assert_eq!(locked.read("sun").expect("there").current, Some(initial.clone()));
    locked.edit("sun", |all| all.add_domain(&name("venus"))).expect("it is new");
    assert_eq!(locked.read_saved("sun", &initial).expect("there").domains.len(), 1);
    assert!(locked.read_saved("sun", &ConfigName::factory_default()).expect("always").domains.is_empty());
    assert_eq!(store.saved().expect("there").iter().collect::<Vec<_>>(), [&initial]);
    locked.remove_saved("sun", &initial).expect("there");
    assert_eq!(locked.read("sun").expect("there").current, None);
    let error = locked.remove_saved("sun", &initial).expect_err("it is gone").to_string();
    assert_eq!(error, "there is no saved configuration `initial`; no configuration is saved");
}

#[test]
fn a_truncated_changed_or_newer_file_is_named_and_kept() {
    let (_folder, store) = store();
    store.lock().expect("free").edit("sun", |all| all.add_domain(&name("mars"))).expect("it is new");
    let path = store.folder().join(STATE);
    let whole = fs::read_to_string(&path).expect("there");
    for (text, wanted) in [
        (whole[..whole.len() / 2].to_owned(), "state.json cannot be read: EOF while parsing"),
        (
            whole.replace("\"format\": 1", "\"format\": 2"),
            "state.json has format 2, written by a later version of vtax",
        ),
        (whole.replace("mars", "M A R S"), "invalid name `M A R S`"),
        (String::new(), "state.json cannot be read"),
    ] {
        fs::write(&path, &text).expect("ours");
        let error = store.read("sun").expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
        store.lock().expect("free").edit("sun", |all| all.add_domain(&name("venus"))).expect_err("it can't be read");
        assert_eq!(fs::read_to_string(&path).expect("there"), text, "it was overwritten");
    }
}

#[test]
fn a_state_truncated_at_any_byte_is_named_and_kept() {
    let (_folder, store) = store();
    store.lock().expect("free").edit("sun", |all| all.add_domain(&name("mars"))).expect("it is new");
    let path = store.folder().join(STATE);
    let whole = fs::read(&path).expect("there");
    println!("{} cuts", whole.len() - 1);
    // The last byte is a newline.
    for cut in 0..whole.len() - 1 {
        fs::write(&path, &whole[..cut]).expect("ours");
        let error = store.read("sun").expect_err("it is cut");
        assert!(matches!(error, DomainStoreError::Damaged { .. }), "{cut}: {error}");
        store.lock().expect("free").edit("sun", |all| all.add_domain(&name("venus"))).expect_err("it can't be read");
        assert_eq!(fs::read(&path).expect("there"), whole[..cut]);
    }
}

/// Creates something at a path.
type Put<'a> = &'a dyn Fn(&Path);

/// Regression test: a FIFO was waited for, and a file of 2 GiB read.
#[test]
fn files_that_are_not_regular_are_named() {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let node = |path: &Path, kind, device| mknodat(CWD, path, kind, Mode::RUSR, device).expect("root may make it");
    let kinds: [(&str, Put<'_>); 5] = [
        ("is a FIFO", &|path| node(path, FileType::Fifo, 0)),
        ("is a device", &|path| node(path, FileType::CharacterDevice, makedev(1, 5))),
        ("is a directory", &|path| fs::create_dir(path).expect("there is room")),
        ("is a symbolic link", &|path| symlink("/dev/zero", path).expect("there is room")),
        ("is too large", &|path| File::create(path).and_then(|file| file.set_len(2 << 30)).expect("a hole")),
    ];
    for (wanted, put) in kinds {
        for file in [STATE, LOCK] {
            let (_folder, store) = store();
            fs::create_dir(store.folder()).expect("ours");
            fs::set_permissions(store.folder(), fs::Permissions::from_mode(0o700)).expect("ours");
            put(&store.folder().join(file));
            let read = store.lock().and_then(|locked| locked.read("sun"));
            match (read, file) {
                // The contents of a lock file are never read.
                (Ok(_), LOCK) => assert_eq!(wanted, "is too large"),
                (read, _) => {
                    let error = read.expect_err(wanted).to_string();
                    assert!(error.contains(wanted) && error.contains(file), "{error}");
                }
            }
        }
    }
}

#[test]
fn changes_in_a_delayed_reconfiguration_take_effect_at_the_next_boot() {
    let (_folder, store) = store();
    let locked = store.lock().expect("it is free");
    let edit = |change: &dyn Fn(&mut Configuration) -> Result<(), DomainError>| locked.edit("sun", |all| change(all));
    edit(&|all| all.add_domain(&name("mars"))).expect("it is new");
    let mut state = store.read("sun").expect("there");
    state.start_reconfiguration().expect("there is none yet");
    assert_eq!(state.start_reconfiguration(), Err(DomainError::Reconfiguring));
    locked.write(&state).expect("it is written");

    let release = |all: &mut Configuration| all.remove_device(&name("primary"), "pci_3");
    edit(&release).expect("it is primary's");
    edit(&|all| all.set_iov("pci_0", true)).expect("nobody said so");
    let refused = edit(&|all| all.add_domain(&name("venus"))).expect_err("others wait").to_string();
    assert!(refused.contains("primary is in a delayed reconfiguration"), "{refused}");
    let kept = store.read("sun").expect("there");
    assert_eq!(kept.configuration, state.configuration, "all is as it was");
    let iov = PrimaryChange::Iov { bus: "pci_0".to_owned(), on: true };
    assert_eq!(kept.pending_changes(), [PrimaryChange::Release("pci_3".to_owned()), iov.clone()]);

    // The host reboots.
    let booted = kept.clone().at_boot("another");
    assert!(booted.pending.is_none() && booted.configuration.devices.released.contains("pci_3"));
    assert_eq!(booted.configuration.devices.iov.get("pci_0"), Some(&true));
    // Or it doesn't, and one of the two is applied.
    let mut applied = kept.clone();
    applied.apply_pending(std::slice::from_ref(&iov));
    assert!(applied.configuration.devices.released.contains("pci_3") && applied.configuration.devices.iov.is_empty());
    assert_eq!(applied.pending_changes(), [iov]);
    applied.apply_pending(&[]);
    assert_eq!((applied.pending.is_none(), applied.configuration), (true, booted.configuration));
    let mut cancelled = kept;
    cancelled.cancel_reconfiguration().expect("there is one");
    assert_eq!(cancelled.cancel_reconfiguration(), Err(DomainError::NotReconfiguring));
    assert_eq!(cancelled.configuration, state.configuration);
}

#[test]
fn a_directory_writable_by_others_is_refused() {
    let (_folder, store) = store();
    drop(store.lock().expect("free"));
    fs::set_permissions(store.folder(), fs::Permissions::from_mode(0o777)).expect("ours");
    let error = store.lock().expect_err("anybody's").to_string();
    assert!(error.contains("is writable by others"), "{error}");
}

#[test]
fn two_concurrent_changes_lose_nothing() {
    let (_folder, store) = store();
    thread::scope(|scope| {
        for domain in 0..16 {
            let store = &store;
            scope.spawn(move || {
                let locked = store.lock().expect("it gets free");
                locked.edit("sun", |all| all.add_domain(&name(&format!("d{domain}")))).expect("it is new");
            });
        }
    });
    assert_eq!(store.read("sun").expect("there").configuration.domains.len(), 16);
}

#[test]
fn names_of_configurations_are_names_of_files() {
    for (text, good) in
        [("initial", true), ("split-2.1_b", true), ("", false), ("../x", false), (".x", false), ("a b", false)]
    {
        assert_eq!(text.parse::<ConfigName>().is_ok(), good, "{text}");
    }
}

/// The state of many domains has a hundred thousand words, and each may not be a separate system call.
#[test]
fn a_large_state_is_written_in_a_few_calls() {
    let (_folder, store) = store();
    let locked = store.lock().expect("it is free");
    let calls = || -> u64 {
        let counts = fs::read_to_string("/proc/thread-self/io").expect("the kernel counts");
        let written = counts.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("proc_pid_io(5)");
        written.parse().expect("a number")
    };
    let domains: Vec<Name> = (0..Configuration::MOST_DOMAINS).map(|number| name(&format!("d{number}"))).collect();
    let before = calls();
    locked.edit("sun", |all| domains.iter().try_for_each(|domain| all.add_domain(domain))).expect("they are new");
    let written = calls() - before;
    assert!(written < 100, "{written} write calls");
}
