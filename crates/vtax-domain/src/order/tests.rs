use std::fs;

use vtax_model::{
    domain::{
        DomainState, PRIMARY, PortRange, SizeChange, SwitchChange, Volume, VolumeChange, VolumeFormat, VolumeName,
    },
    units::ByteSize,
};
use vtax_sys::process::{Pid, ProcessId};

use super::{lifecycle::chosen, *};
use crate::{
    DomainNotice, DomainStoreError,
    test_domains::{DomainJournal, TestHost, add_domain, add_switch, configuration, disk, mars, mib, name},
};

fn named(names: &[&str]) -> ChosenDomains {
    ChosenDomains::Named(names.iter().copied().map(name).collect())
}

fn names(names: &[&str]) -> Vec<Name> {
    names.iter().copied().map(name).collect()
}

fn config_name(text: &str) -> ConfigName {
    text.parse().expect("a name")
}

fn volume(text: &str) -> VolumeName {
    text.parse().expect("the name of a volume")
}

/// Returns a host on which mars, with the disk `vol1`, is bound and venus is not. Nothing of it exists in the kernel.
fn host_of_mars() -> TestHost {
    let (host, mut all) = (TestHost::with_domains(), configuration());
    add_domain(&mut all, "venus");
    all.add_disk_service(&name("primary-vds0"), name(PRIMARY)).expect("it is new");
    for (number, backend) in ["vol1", "vol2"].iter().zip(["/srv/vol1.img", "/srv/vol2.img"]) {
        let new = Volume::new(backend.to_owned(), VolumeFormat::Raw);
        all.add_volume(&volume(&format!("{number}@primary-vds0")), new).expect("it is new");
    }
    host.store(&all);
    let mut own = mars(&all);
    own.disks = vec![disk("vol1", 0)];
    DomainJournal::new(&own).started(&all).write(&host.domains());
    host
}

/// Carries out an order that must be refused because of the user's input, and must change nothing.
fn refused(host: &TestHost, change: DomainChange) -> String {
    let (before, order) = (host.host.read().expect("it can be read"), format!("{change:?}"));
    let error = host.order(change).expect_err(&order);
    assert!(error.is_of_input(), "{order}: {error}");
    assert_eq!(host.host.read().expect("it can be read"), before, "{order}");
    error.to_string()
}

#[test]
fn an_order_that_the_state_of_a_domain_or_the_host_forbids_changes_nothing() {
    let (vol1, force) = (volume("vol1@primary-vds0"), true);
    let change = VolumeChange::default();
    let orders = [
        (DomainChange::RemoveDomains { which: ChosenDomains::All }, "mars is bound; only an inactive domain can be"),
        (DomainChange::RemoveDomains { which: named(&["venus", "mars"]) }, "mars is bound"),
        (DomainChange::RemoveDomains { which: named(&["venus", "pluto"]) }, "no domain `pluto`"),
        (DomainChange::LoadConfiguration { name: ConfigName::factory_default() }, "mars is bound; loading a saved"),
        (DomainChange::SetVolume { volume: vol1.clone(), change }, "mars is bound and uses it as vol1"),
        (DomainChange::RemoveVolume { volume: vol1, force }, "mars is bound and uses it as vol1"),
        (DomainChange::RemoveDiskService { service: name("primary-vds0"), force }, "mars is bound and uses it"),
        (DomainChange::Bind { domains: names(&["mars"]) }, "mars is bound; there is nothing to do"),
        (DomainChange::Bind { domains: names(&[PRIMARY]) }, "primary is this host"),
        (DomainChange::Bind { domains: names(&["pluto"]) }, "no domain `pluto`"),
        (DomainChange::Start { which: named(&["venus"]) }, "venus is inactive; bind it first"),
        (DomainChange::Unbind { which: named(&["venus"]) }, "venus is inactive; bind it first"),
        (
            DomainChange::Stop { which: named(&["mars"]), mode: StopMode::Hard, reboot: false },
            "mars is bound; there is nothing to do",
        ),
        (DomainChange::Panic { domains: names(&[PRIMARY]) }, "primary is this host, which vtax does not crash"),
        (DomainChange::Panic { domains: names(&["mars"]) }, "mars is bound; start it first"),
        (DomainChange::Panic { domains: names(&["mars", "pluto"]) }, "no domain `pluto`"),
        (DomainChange::Release { domains: names(&["venus"]) }, "venus is inactive"),
        (DomainChange::StartReconfiguration { domain: name("mars") }, "mars"),
        (DomainChange::StartReconfiguration { domain: name("pluto") }, "no domain `pluto`"),
        (DomainChange::CancelReconfiguration { domain: name(PRIMARY) }, "primary"),
        (
            DomainChange::InitSystem { configuration: Box::default(), force: false, only_services: false },
            "requires a host without domains and services",
        ),
        (DomainChange::SaveConfiguration { name: ConfigName::factory_default() }, "cannot be replaced or removed"),
        (DomainChange::RemoveConfiguration { name: ConfigName::factory_default() }, "cannot be replaced or removed"),
        (DomainChange::LoadConfiguration { name: config_name("none") }, "mars is bound"),
    ];
    let host = host_of_mars();
    for (order, why) in orders {
        let told = refused(&host, order.clone());
        assert!(told.contains(why), "{order:?}: {told}");
    }
    assert_eq!(host.heard(), [], "no order had an effect, or more than one error");
}

#[test]
fn an_unprivileged_user_can_do_nothing_that_needs_the_kernel() {
    let host = TestHost::of_user();
    host.store(&configuration());
    let before = host.stored();
    let (all, mode) = (|| ChosenDomains::All, StopMode::Hard);
    let mut more = Configuration::new("other");
    add_domain(&mut more, "pluto");
    for order in [
        DomainChange::Bind { domains: names(&["mars"]) },
        DomainChange::Unbind { which: all() },
        DomainChange::Start { which: all() },
        DomainChange::Stop { which: all(), mode, reboot: true },
        DomainChange::Panic { domains: names(&["mars"]) },
        DomainChange::Autostart,
        DomainChange::Release { domains: Vec::new() },
        DomainChange::AddDomains { configuration: Box::new(more), until: AddedDomains::Bound },
        DomainChange::CreateFunctions { physical: "pci_0".to_owned(), new: NewVfs::default() },
        DomainChange::DestroyFunctions { physical: "pci_0".to_owned(), count: None },
    ] {
        let told = format!("{order:?}");
        assert!(matches!(host.order(order), Err(BindError::NotRoot)), "{told}");
    }
    assert_eq!(host.stored(), before, "no domain was added either");
}

#[test]
fn memory_is_set_changed_and_rounded_up_with_a_notice() {
    let size = |memory, change, adjust| DomainChange::SizeMemory { domain: name("mars"), memory, change, adjust };
    let (add, remove) = (Some(SizeChange::Add), Some(SizeChange::Remove));
    let host = TestHost::of_user();
    for (memory, change, adjust, expected) in [
        (mib(300), None, false, Ok(mib(300))),
        (mib(300), None, true, Ok(mib(512))),
        (mib(512), None, true, Ok(mib(512))),
        (mib(72), add, false, Ok(mib(200))),
        (mib(28), remove, false, Ok(mib(100))),
        (mib(28), remove, true, Ok(mib(256))),
        (mib(129), remove, false, Err("there are only 128 MiB")),
        (ByteSize(u64::MAX), add, false, Err("small enough for a 64-bit number")),
    ] {
        host.store(&configuration());
        let memory_now = || host.stored().domain(&name("mars")).expect("it is there").memory;
        match (host.order(size(memory, change, adjust)), expected) {
            (Ok(()), Ok(expected)) => assert_eq!(memory_now(), Some(expected), "{memory} {change:?} {adjust}"),
            (Err(error), Err(why)) => {
                assert!(error.is_of_input() && error.to_string().contains(why), "{error}");
                assert_eq!(memory_now(), Some(mib(128)));
            }
            (found, expected) => panic!("{memory} {change:?} {adjust}: {found:?}, and not {expected:?}"),
        }
        let asked = match change {
            None => memory,
            Some(_) => mib(100),
        };
        let rounded = expected.ok().filter(|size| adjust && *size != asked);
        let notice = rounded.map(|size| DomainNotice::Rounded { domain: name("mars"), wanted: asked, size });
        assert_eq!(host.heard(), Vec::from_iter(notice));
    }
}

/// Returns a configuration with two domains that have no CPUs yet, so that they cannot be bound.
fn incomplete() -> Configuration {
    let mut more = Configuration::new("other");
    for domain in ["eris", "pluto"] {
        more.add_domain(&name(domain)).expect("it is new");
        more.set_memory(&name(domain), mib(128)).expect("possible");
        more.set_autostart(&name(domain), true).expect("possible");
    }
    more
}

#[test]
fn domains_that_cannot_be_bound_are_not_added_either() {
    for (until, is_added) in
        [(AddedDomains::Inactive, true), (AddedDomains::Bound, false), (AddedDomains::Started, false)]
    {
        let host = host_of_mars();
        let added = host.order(DomainChange::AddDomains { configuration: Box::new(incomplete()), until });
        assert_eq!(added.is_ok(), is_added, "{until:?}");
        let stored: Vec<String> = host.stored().domains.keys().map(Name::to_string).collect();
        let expected: &[&str] = if is_added { &["eris", "mars", "pluto", "venus"] } else { &["mars", "venus"] };
        assert_eq!(stored, expected, "{until:?}");
        assert_eq!(host.heard(), [], "{until:?}");
    }
}

#[test]
fn a_domain_that_fails_does_not_keep_the_others_from_being_tried() {
    let host = host_of_mars();
    let add = DomainChange::AddDomains { configuration: Box::new(incomplete()), until: AddedDomains::Inactive };
    host.order(add).expect("their names are free");
    let error = host.order(DomainChange::Bind { domains: names(&["eris", "pluto"]) }).expect_err("they have no CPUs");
    assert!(error.to_string().contains("pluto has no CPUs yet"), "the last one is the end: {error}");
    let heard = host.heard();
    assert!(matches!(&heard[..], [DomainNotice::Trouble(told)] if told.contains("eris has no CPUs yet")), "{heard:?}");
}

#[test]
fn at_boot_all_domains_that_could_not_be_started_are_named() {
    let host = TestHost::with_domains();
    host.store(&incomplete());
    let error = host.order(DomainChange::Autostart).expect_err("they have no CPUs").to_string();
    assert!(
        ["eris has no CPUs", "pluto has no CPUs", "all others are running"].iter().all(|part| error.contains(part)),
        "{error}"
    );
    let mut none = incomplete();
    none.domains.values_mut().for_each(|domain| domain.autostart = false);
    host.store(&none);
    host.order(DomainChange::Autostart).expect("there is nothing to start");
}

#[test]
fn all_domains_in_the_state_that_an_order_changes_are_chosen() {
    let (host, all) = (host_of_mars(), configuration());
    let record = |domain: &str| DomainJournal::new(&crate::Bindings { domain: name(domain), ..mars(&all) });
    record("binding").write(&host.domains());
    let own = ProcessId::of(Pid::own()).expect("it lives");
    record("active").started(&all).write(&host.domains());
    fs::create_dir(host.domains().join("active")).expect("ours");
    fs::write(host.domains().join("active/supervisor"), own.to_string()).expect("ours");
    fs::write(host.domains().join("active/started.json"), r#"{"at":{"secs":1,"nanos":0},"is_up":true}"#).expect("ours");
    fs::write(host.domains().join("journals/damaged.journal"), "damaged").expect("ours");
    host.change(|change| {
        let domains = change.domains()?;
        assert_eq!(chosen(ChosenDomains::All, domains, DomainState::Bound)?, names(&["mars"]));
        assert_eq!(chosen(ChosenDomains::All, domains, DomainState::Active)?, names(&["active"]));
        let asked = names(&["pluto", "damaged", "mars"]);
        assert_eq!(chosen(ChosenDomains::Named(asked.clone()), domains, DomainState::Active)?, asked);
        Ok(())
    });
}

#[test]
fn a_host_is_set_up_from_a_configuration_as_a_whole_or_only_its_services() {
    let mut new = configuration();
    new.devices.iov.insert("pci_0".to_owned(), true);
    let init =
        |force, only_services| DomainChange::InitSystem { configuration: Box::new(new.clone()), force, only_services };
    for (only_services, domains, buses) in [(false, 1, 1), (true, 0, 0)] {
        let host = TestHost::of_user();
        host.order(init(false, only_services)).expect("it is empty");
        let stored = host.stored();
        assert_eq!((stored.domains.len(), stored.switches.len(), stored.devices.iov.len()), (domains, 1, buses));
        assert_eq!(stored.host, host.host.id(), "addresses are those of this host");
        // The names are taken, whether forced or not.
        refused(&host, init(true, only_services));
    }
    let host = TestHost::of_user();
    let mut other = Configuration::new("sun");
    add_switch(&mut other, "vsw9", PRIMARY, SwitchChange::default());
    host.store(&other);
    assert!(refused(&host, init(false, false)).contains("(-f)"));
    host.order(init(true, false)).expect("no name is taken");
    assert_eq!(host.stored().switches.len(), 2);
}

#[test]
fn a_saved_configuration_can_be_loaded_again_and_not_overwritten() {
    let host = TestHost::of_user();
    host.store(&configuration());
    let whole = host.stored();
    let save = |text: &str| host.order(DomainChange::SaveConfiguration { name: config_name(text) });
    let load = |name: ConfigName| host.order(DomainChange::LoadConfiguration { name });
    save("initial").expect("it is new");
    assert!(matches!(save("initial"), Err(BindError::Store(DomainStoreError::SavedExists { .. }))));
    // It could be saved but never loaded: an empty one was loaded instead.
    assert!(matches!(save("factory-default"), Err(BindError::Store(DomainStoreError::FactoryDefault))));
    host.order(DomainChange::RemoveDomains { which: ChosenDomains::All }).expect("they are inactive");
    assert!(host.stored().domains.is_empty());
    load(config_name("initial")).expect("it is saved");
    assert_eq!((host.stored(), host.host.read().expect("there").current), (whole, Some(config_name("initial"))));
    load(ConfigName::factory_default()).expect("it always exists");
    assert_eq!((host.stored(), host.host.read().expect("there").current), (Configuration::new(host.host.id()), None));
    assert!(refused(&host, DomainChange::LoadConfiguration { name: config_name("none") }).contains("`none`"));
    host.order(DomainChange::RemoveConfiguration { name: config_name("initial") }).expect("it is saved");
    assert!(matches!(load(config_name("initial")), Err(BindError::Store(DomainStoreError::NoSaved { .. }))));
}

#[test]
fn in_a_delayed_reconfiguration_the_host_changes_at_its_next_boot_and_nothing_is_replaced() {
    let host = TestHost::of_user();
    host.store(&configuration());
    let before = host.stored();
    host.order(DomainChange::StartReconfiguration { domain: name(PRIMARY) }).expect("there is none yet");
    assert_eq!(host.heard(), [DomainNotice::ReconfigurationStarted]);
    let edit = DomainEdit::SetSwitch { switch: name("vsw0"), service: None, change: SwitchChange::default() };
    let ports = PortRange::USUAL;
    let service = vtax_model::domain::ConsoleService { domain: name(PRIMARY), ports, users: None };
    for edit in [edit, DomainEdit::AddConsoleService { name: name("console"), service }] {
        host.order(DomainChange::Edit { edit }).expect("primary's own");
        assert_eq!(host.heard(), [DomainNotice::Reconfiguring]);
    }
    assert_eq!(host.stored(), before);
    let of_domain = DomainEdit::SetCpus { domain: name("mars"), cpus: vtax_model::domain::CpuDemand::Cores(2) };
    for order in [
        DomainChange::Edit { edit: of_domain },
        DomainChange::StartReconfiguration { domain: name(PRIMARY) },
        DomainChange::LoadConfiguration { name: ConfigName::factory_default() },
        DomainChange::InitSystem { configuration: Box::default(), force: true, only_services: false },
    ] {
        refused(&host, order);
    }
    host.order(DomainChange::CancelReconfiguration { domain: name(PRIMARY) }).expect("there is one");
    assert_eq!((host.stored(), host.host.read().expect("there").pending), (before, None));
}

#[test]
fn the_backend_of_a_new_volume_must_exist_unless_its_check_is_deferred() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |file: &str| folder.path().join(file).to_str().expect("text").to_owned();
    fs::write(path("there.img"), vec![0; 1 << 20]).expect("ours");
    let host = TestHost::of_user();
    let mut all = configuration();
    all.add_disk_service(&name("vds0"), name(PRIMARY)).expect("it is new");
    host.store(&all);
    let add = |file: &str, deferred: bool| DomainChange::AddVolume {
        volume: volume("vol1@vds0"),
        new: NewVolume {
            backend: path(file),
            format: deferred.then_some(VolumeFormat::Qcow2),
            change: VolumeChange::default(),
            deferred,
        },
    };
    assert!(refused(&host, add("missing.img", false)).contains("missing.img"));
    for (file, deferred, format) in
        [("there.img", false, VolumeFormat::Raw), ("missing.img", true, VolumeFormat::Qcow2)]
    {
        host.order(add(file, deferred)).expect("possible");
        let stored = host.stored();
        assert_eq!(stored.volume(&volume("vol1@vds0")).expect("it was added").format, format);
        let told = refused(&host, add("there.img", false));
        assert!(told.contains("vol1"), "{told}");
        host.order(DomainChange::RemoveVolume { volume: volume("vol1@vds0"), force: false }).expect("nobody uses it");
    }
}

/// A path of the group is the disk of a bound domain as well.
#[test]
fn a_volume_is_in_use_if_another_path_of_its_group_is() {
    let host = host_of_mars();
    let mut all = host.stored();
    for number in ["vol1", "vol2"] {
        let change = VolumeChange { mpgroup: Some(Some(name("group"))), ..VolumeChange::default() };
        let found = all.disk_services.get_mut(&name("primary-vds0")).expect("it is there");
        change.fill(found.volumes.get_mut(&name(number)).expect("it is there"));
    }
    host.store(&all);
    let set = |text: &str| DomainChange::SetVolume { volume: volume(text), change: VolumeChange::default() };
    assert!(refused(&host, set("vol2@primary-vds0")).contains("uses it as vol1"));
    let unused = DomainChange::RemoveVolume { volume: volume("vol2@primary-vds0"), force: false };
    host.order(unused).expect("mars uses only the other one");
}

#[test]
fn only_missing_host_features_are_refused_before_the_configuration_is_consulted() {
    let host = TestHost::of_user();
    host.store(&configuration());
    let cores = |ids: &[u32]| DomainEdit::SetCpus {
        domain: name("mars"),
        cpus: vtax_model::domain::CpuDemand::Cids(ids.iter().copied().collect()),
    };
    let users = ["root", "nobody-of-this-name"].map(|user| user.parse().expect("the name of a user"));
    let service = |users: &[vtax_model::domain::UserName]| DomainEdit::AddConsoleService {
        name: name("console"),
        service: vtax_model::domain::ConsoleService {
            domain: name(PRIMARY),
            ports: PortRange::USUAL,
            users: Some(users.iter().cloned().collect()),
        },
    };
    for (edit, why) in
        [(cores(&[0, 1 << 20]), "there is no core 1048576"), (service(&users), "no user `nobody-of-this-name`")]
    {
        let told = refused(&host, DomainChange::Edit { edit });
        assert!(told.contains(why), "{told}");
    }
    for edit in [cores(&[0]), service(&users[..1])] {
        host.order(DomainChange::Edit { edit }).expect("this host has them");
    }
}

/// The other side may be another version, and must not misread an order that it doesn't know.
#[test]
fn an_order_with_an_unknown_word_is_refused() {
    for text in [
        r#"{"look":{"depth":"stored","more":1}}"#,
        r#"{"change":{"bind":{"domains":["mars"],"force":true}}}"#,
        r#"{"change":{"bound":{"domains":["mars"]}}}"#,
        r#"{"change":{"bind":{"domains":["M A R S"]}}}"#,
        r#"{"change":{"add-volume":{"volume":"v@s","new":{"backend":"/x","change":{},"deferred":true,"more":1}}}}"#,
        r#"{"change":{"create-functions":{"physical":"pci_0","new":{"number":2}}}}"#,
        r#"{"change":{"create-functions":{"physical":"pci_0","new":{"count":0}}}}"#,
        r#"{"import":{"source":"libvirt:web","name":null,"more":1}}"#,
    ] {
        assert!(serde_json::from_str::<DomainOrder>(text).is_err(), "{text}");
    }
    let text = r#"{"change":{"bind":{"domains":["mars"]}}}"#;
    let read: DomainOrder = serde_json::from_str(text).expect("an order");
    assert_eq!(read, DomainOrder::Change(Box::new(DomainChange::Bind { domains: names(&["mars"]) })));
    assert_eq!(serde_json::to_string(&read).expect("JSON"), text);
}
