use super::*;

fn read(name: &str, text: &str) -> HostList {
    HostList::parse(Source { name, text }).expect("a list")
}

fn refused(name: &str, text: &str) -> String {
    HostList::parse(Source { name, text }).expect_err("refused").to_string()
}

/// Each host in one line.
fn told(list: &HostList) -> String {
    let host = |host: &FleetHost| {
        let nic = |nic: &FleetNic| {
            let parts = [
                nic.address.map(|address| address.to_string()),
                nic.device.as_ref().map(ToString::to_string),
                nic.rail.as_ref().map(|rail| format!("rail {rail}")),
                nic.uplink.as_ref().map(|uplink| format!("uplink {uplink}")),
            ];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        let nics = host.nics.iter().map(nic).collect::<Vec<_>>().join(", ");
        let rack = host.rack.as_ref().map(|rack| format!(" rack {rack}")).unwrap_or_default();
        let groups: Vec<&str> = host.groups.iter().map(FleetName::as_str).collect();
        let out = host.unavailable.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{} {}{rack} [{nics}] {}{out}\n", host.name, host.control, groups.join(","))
    };
    list.hosts.iter().map(host).collect()
}

pub(super) const RACK_FILE: &str = r#"
[[host]]
name = "gpu1"
rack = "rack7"
uplink = "leaf7"

[[host]]
name = "gpu2"
control = "netns:gpu2"
address = "192.0.2.2"
device = "eth1"
groups = ["train"]

[[host]]
name = "gpu3"
uplink = "leaf7"
nics = [{ device = "mlx0", rail = "r0" }, { address = "192.0.2.9", rail = "r1", uplink = "spine" }]

[[uplink]]
name = "leaf7"
tests = 4
"#;

#[test]
fn a_rack_file_has_hosts_nics_and_uplinks() {
    let list = read("rack.toml", RACK_FILE);
    insta::assert_snapshot!(told(&list));
    assert_eq!(list.limits, UplinkLimits::from([("leaf7".parse().expect("a name"), 4)]));
    let names: Vec<String> = list.ends().expect("three").into_iter().map(|end| end.name.to_string()).collect();
    assert_eq!(names, ["gpu1", "gpu2", "gpu3/mlx0", "gpu3/192.0.2.9"]);
}

#[test]
fn errors_of_a_rack_file_name_file_and_line() {
    let host = |more: &str| format!("[[host]]\nname = \"a\"\n{more}\n");
    let texts = [
        host("rak = \"r\""),
        host("control = \"telnet:a\""),
        host("name2 = 1"),
        "[[host]]\nname = \"a b\"\n".to_owned(),
        host("nics = []"),
        host("address = \"192.0.2.1\"\nnics = [{ device = \"e0\" }]"),
        format!("{}{}", host(""), host("")),
        host("[[uplink]]\nname = \"x\"\ntests = 1"),
        host("uplink = \"x\"\n[[uplink]]\nname = \"x\"\ntests = 0"),
        "# nothing\n".to_owned(),
    ];
    let told: Vec<String> = texts.iter().map(|text| refused("rack.toml", text)).collect();
    insta::assert_snapshot!(told.join("\n"));
}

pub(super) const INVENTORY: &str = "# ours
lonely
[rack7]
gpu[01:03] ansible_user=root vtax_uplink=leaf7
[rack8]
gpu04 ansible_host=192.0.2.4 # broken fan
db-[a:b]
[racks:children]
rack7
rack8
[racks:vars]
vtax_rail=\"r0\"
ansible_port=22
[rack8:vars]
vtax_rack=r8
";

#[test]
fn an_inventory_has_groups_ranges_and_variables() {
    insta::assert_snapshot!(told(&read("hosts", INVENTORY)));
}

#[test]
fn names_one_per_line_are_a_list() {
    assert_eq!(told(&read("-", "n1\nn2\nn3\n")), "n1 ssh:n1 [] \nn2 ssh:n2 [] \nn3 ssh:n3 [] \n");
}

#[test]
fn errors_of_an_inventory_name_the_line() {
    let texts = [
        "a\nb!\n",
        "[x:y]\n",
        "a\ngpu[3:1]\n",
        "a b\n",
        "[x:vars]\nv\n",
        "a ansible_host=-x\n",
        "a vtax_address=1\n",
        "",
    ];
    let told: Vec<String> = texts.iter().map(|text| refused("hosts", text)).collect();
    insta::assert_snapshot!(told.join("\n"));
}

pub(super) const SLURM: &str = "NodeName=n1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.11
   AvailableFeatures=(null)
   ActiveFeatures=rack7,h100
   NodeAddr=192.0.2.1 NodeHostName=n1 Version=22.05.8
   OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=debug,gpu

NodeName=n2 Arch=x86_64
   NodeAddr=n2 NodeHostName=n2
   State=DOWN*+DRAIN ThreadsPerCore=1
   Partitions=debug
   Reason=State=IDLE [root@2026-01-01T00:00:00]

NodeName=n3 State=MIXED+DRAIN Partitions=gpu
";

#[test]
fn nodes_of_slurm_have_partitions_and_states() {
    insta::assert_snapshot!(told(&read("-", SLURM)));
    assert_eq!(refused("-", "NodeName=n1 State=IDLE\nNodeName=!\n"), refused_name("-:2: invalid name `!`"));
}

fn refused_name(start: &str) -> String {
    format!("{start}: use 1 to 253 letters, digits and ._-, a letter or digit first")
}

pub(super) const KUBERNETES: &str = r#"{
  "apiVersion": "v1", "kind": "List",
  "items": [
    {"metadata": {"name": "k1", "labels": {"topology.kubernetes.io/zone": "z1"}},
     "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}], "conditions": [{"type": "Ready", "status": "True"}]}},
    {"metadata": {"name": "k2"},
     "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
  ]
}"#;

#[test]
fn nodes_of_kubernetes_have_zones_addresses_and_conditions() {
    insta::assert_snapshot!(told(&read("-", KUBERNETES)));
}

pub(super) const ANSIBLE_JSON: &str = r#"{
  "_meta": {"hostvars": {"h1": {"ansible_host": "192.0.2.1", "vtax_uplink": "leaf1"}, "h2": {"ansible_port": 22}}},
  "all": {"children": ["ungrouped", "racks"]},
  "racks": {"children": ["rack1"]},
  "rack1": {"hosts": ["h1", "h2"]},
  "ungrouped": {"hosts": ["h3"]}
}"#;

#[test]
fn a_list_of_ansible_has_groups_and_variables() {
    insta::assert_snapshot!(told(&read("-", ANSIBLE_JSON)));
}

#[test]
fn errors_of_json_name_the_line() {
    let texts = [
        "{",
        "{\n\"items\": [{\"metadata\":\n{\"name\": \"a b\"}}]}",
        "{\"_meta\": {\"hostvars\": {}},\n\"x\": {\"hosts\": 3}}",
        "{\"_meta\": {\"hostvars\": {\n\"h\": {\"vtax_rack\": \"a b\"}}}}",
        "{\"no\": {}}",
    ];
    let told: Vec<String> = texts.iter().map(|text| refused("-", text)).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn a_part_of_the_fleet_is_selected_by_its_name() {
    let list = read("rack.toml", RACK_FILE);
    let within = |part: &str| list.clone().within(&part.parse().expect("a name"));
    let names =
        |part: &str| within(part).expect("known").hosts.iter().map(|host| host.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names("leaf7"), ["gpu1", "gpu3"]);
    assert_eq!(
        (names("rack7"), names("train"), names("r1")),
        (vec!["gpu1".into()], vec!["gpu2".into()], vec!["gpu3".into()])
    );
    let unknown = within("leaf9").expect_err("unknown").to_string();
    assert_eq!(
        unknown,
        "no host, rack, uplink, rail or group is named `leaf9`; available: leaf7, r0, r1, rack7, spine, train"
    );
    let few = within("leaf7").expect("known").ends().expect_err("two").to_string();
    assert_eq!(few, "2 of the hosts can be measured, but a mesh requires 3: add hosts");
    let down = read("-", SLURM).ends().expect_err("two").to_string();
    assert!(down.ends_with("add hosts (n2: state DOWN*+DRAIN)"), "{down}");
}

/// A table of ten bytes takes hundreds of them in memory: a list of 64 MiB filled it.
#[test]
fn a_rack_file_is_bounded_more_than_other_lists() {
    let host = |number| format!("[[host]]\nname = \"host-{number}\"\nrack = \"rack\"\naddress = \"10.0.0.1\"\n");
    let most: String = (0..20_000).map(host).collect();
    assert!(most.len() < 4 << 20, "{} bytes", most.len());
    assert!(refused("rack.toml", &"[[host]]\n".repeat(2 << 20)).contains("larger than 16 MiB"));
}
