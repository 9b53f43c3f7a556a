use super::{
    super::{Configuration, DependencyKind, PRIMARY},
    *,
};

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn volume_name(text: &str) -> VolumeName {
    text.parse().expect("a volume")
}

fn volume(backend: &str, options: &[VolumeOption], slice: Option<&str>, mpgroup: Option<&str>) -> Volume {
    Volume {
        backend: backend.to_owned(),
        format: VolumeFormat::Raw,
        options: options.iter().copied().collect(),
        slice: slice.map(|slice| slice.parse().expect("a slice")),
        mpgroup: mpgroup.map(name),
    }
}

/// Two domains, a disk service, and a file that it exports.
fn planets() -> Configuration {
    let mut all = Configuration::new("sun");
    ["mars", "venus"].iter().for_each(|domain| all.add_domain(&name(domain)).expect("it is new"));
    all.add_disk_service(&name("vds0"), name(PRIMARY)).expect("it is new");
    all.add_volume(&volume_name("vol1@vds0"), volume("/d/one", &[], None, None)).expect("it is new");
    all
}

fn add(all: &mut Configuration, domain: &str, disk: &str, volume: &str) -> Result<(), DomainError> {
    all.add_disk(&name(domain), &name(disk), volume_name(volume), DiskChange::default())
}

#[test]
fn slices_are_written_as_they_are_read() {
    for text in ["0+512", "1G+512M", "1536+1K"] {
        assert_eq!(text.parse::<DiskSlice>().expect("a slice").to_string(), text);
    }
    let slice: DiskSlice = "1024M+1g".parse().expect("a slice");
    assert_eq!((slice.to_string().as_str(), slice.end()), ("1G+1G", 2 << 30));
    for text in ["", "1G", "1G+", "+1G", "1+512", "0+0", "0+100", "16E+1G", "0+18446744073709551615", "-1+512"] {
        let error = text.parse::<DiskSlice>().expect_err(text).to_string();
        assert!(error.contains("e.g. 1G+512M"), "{error}");
    }
}

#[test]
fn a_writable_volume_is_a_single_disk() {
    let mut all = planets();
    add(&mut all, "mars", "root", "vol1@vds0").expect("nobody has it");
    let told = add(&mut all, "venus", "root", "vol1@vds0").expect_err("mars has it").to_string();
    assert!(told.contains("mars has it") && told.contains("options=ro"), "{told}");
    let ro = VolumeChange { options: Some([VolumeOption::Ro].into()), ..VolumeChange::default() };
    all.set_volume(&volume_name("vol1@vds0"), ro).expect("possible");
    add(&mut all, "venus", "root", "vol1@vds0").expect("nobody writes");
    let rw = VolumeChange { options: Some(BTreeSet::new()), ..VolumeChange::default() };
    let told = all.set_volume(&volume_name("vol1@vds0"), rw).expect_err("both have it").to_string();
    assert!(told.contains("must remain options=ro"), "{told}");
}

#[test]
fn blocks_belong_to_one_volume_or_group() {
    let mut all = planets();
    let mut try_add =
        |name: &str, volume: Volume| all.add_volume(&volume_name(name), volume).map_err(|it| it.to_string());
    let told = try_add("vol2@vds0", volume("/d/one", &[], None, None)).expect_err("exported");
    assert!(told.contains("/d/one is already exported as vol1@vds0"), "{told}");
    try_add("vol2@vds0", volume("/d/two", &[], Some("0+1M"), None)).expect("it is new");
    try_add("vol3@vds0", volume("/d/two", &[], Some("1M+1M"), None)).expect("another part");
    try_add("vol4@vds0", volume("/d/two", &[], Some("1536K+1M"), None)).expect_err("a part is that of vol3");
    try_add("vol5@vds0", volume("/d/five", &[], None, Some("five"))).expect("it is new");
    try_add("vol6@vds0", volume("/d/five", &[], None, Some("five"))).expect("another path");
    let told =
        try_add("vol7@vds0", volume("/d/five", &[VolumeOption::Ro], None, Some("five"))).expect_err("it differs");
    assert!(told.contains("vol7@vds0 and vol5@vds0 cannot be paths"), "{told}");
    try_add("vol7@vds0", volume("five", &[], None, None)).expect_err("no absolute path");
    try_add("vol7@vds1", volume("/d/seven", &[], None, None)).expect_err("no such service");
    let both = volume("/d/seven", &[VolumeOption::Slice], Some("0+512"), None);
    try_add("vol7@vds0", both).expect_err("one or the other");
    let paths: Vec<String> =
        all.paths(&volume_name("vol6@vds0")).expect("it is there").iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(paths, ["vol6@vds0", "vol5@vds0"]);
}

#[test]
fn all_paths_of_a_group_change_together() {
    let mut all = planets();
    for path in ["a@vds0", "b@vds0"] {
        all.add_volume(&volume_name(path), volume("/d/x", &[], None, Some("x"))).expect("a path");
    }
    add(&mut all, "mars", "data", "a@vds0").expect("nobody has it");
    add(&mut all, "venus", "data", "b@vds0").expect_err("it is the same disk");
    let change = VolumeChange { options: Some([VolumeOption::Excl].into()), ..VolumeChange::default() };
    all.set_volume(&volume_name("b@vds0"), change).expect("possible");
    assert!(all.volumes().filter(|(_, found)| found.mpgroup.is_some()).all(|(_, found)| found.has(VolumeOption::Excl)));
    let alone = VolumeChange { mpgroup: Some(None), ..VolumeChange::default() };
    all.set_volume(&volume_name("b@vds0"), alone).expect_err("it is the other one's file");
}

#[test]
fn disks_have_numbers_and_go_with_what_they_are_made_of() {
    let mut all = planets();
    all.add_volume(&volume_name("vol2@vds0"), volume("/d/two", &[], None, None)).expect("it is new");
    add(&mut all, "mars", "root", "vol1@vds0").expect("nobody has it");
    add(&mut all, "mars", "root", "vol2@vds0").expect_err("the same name");
    add(&mut all, "mars", "data", "vol2@vds0").expect("nobody has it");
    let id = |all: &Configuration, disk: &str| all.disk(&name("mars"), &name(disk)).expect("it is there").id;
    assert_eq!((id(&all, "root"), id(&all, "data")), (0, 1));
    let change = DiskChange { id: Some(0), timeout: Some(30), volume: None };
    all.set_disk(&name("mars"), &name("data"), change).expect_err("root has 0");
    let on = all.dependencies();
    assert_eq!((on.len(), on[0].kind, on[0].device.as_str()), (2, DependencyKind::Vdisk, "vds0/data"));
    all.remove_volume(&volume_name("vol1@vds0"), false).expect_err("root is made of it");
    all.remove_volume(&volume_name("vol1@vds0"), true).expect("said twice");
    all.remove_disk_service(&name("vds0"), false).expect_err("vol2 is left");
    assert_eq!(all.clone().rebuilt("sun").expect("all of it was checked"), all);
    all.remove_disk_service(&name("vds0"), true).expect("said twice");
    assert!(all.domain(&name("mars")).expect("it is there").disks.is_empty());
}

#[test]
fn serial_numbers_fit_a_virtio_disk() {
    let of = |disk: &str| VirtualDisk { name: name(disk), volume: volume_name("a@b"), id: 0, timeout: None }.serial();
    assert_eq!(of("root"), "root");
    assert_eq!(of("first-of-twenty-six-chars"), "first-of-t-six-chars");
}
