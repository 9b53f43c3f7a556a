use super::*;
use proptest::prelude::*;

#[test]
fn an_endpoint_is_local_a_host_or_a_zone() {
    for text in ["local", "ssh:vm1", "ssh:root@vm1", "zone:z1", "zone:mylab/z1"] {
        assert_eq!(text.parse::<Control>().map(|control| control.to_string()), Ok(text.to_owned()));
    }
    for text in ["ssh:user.name@host-1.example", "ssh:root@[fe80::1%eth0]", "ssh:a_b+c"] {
        assert!(text.parse::<Control>().is_ok(), "{text}");
    }
    for text in ["ssh:-oProxyCommand=x", "ssh:a b", "ssh:a;b", "ssh:$(b)", "ssh:a\nvtax: forged", "ssh:a\u{202e}b"] {
        let told = text.parse::<Control>().expect_err(text).to_string();
        assert!(told.contains("a host name") && !told.contains(char::is_control), "{told}");
    }
    for text in ["", "vm1", "ssh:", "zone:", "zone:a/b/c", "locally", "xen:x"] {
        assert!(text.parse::<Control>().is_err(), "{text}");
    }
}

#[test]
fn a_logical_domain_is_of_this_machine_or_of_a_host_of_a_lab() {
    let read = |text: &str| match text.parse::<Control>() {
        Ok(Control::Domain(end)) => {
            (end.within.map(|host| host.to_string()), end.domain.to_string(), end.nic.map(|nic| nic.to_string()))
        }
        other => panic!("{text}: {other:?}"),
    };
    let of = |within: Option<&str>, domain: &str, nic: Option<&str>| {
        (within.map(str::to_owned), domain.to_owned(), nic.map(str::to_owned))
    };
    assert_eq!(read("ldm:mars"), of(None, "mars", None));
    assert_eq!(read("ldm:mars/net0"), of(None, "mars", Some("net0")));
    assert_eq!(read("ldm:rack/sut/mars"), of(Some("rack/sut"), "mars", None));
    assert_eq!(read("ldm:rack/sut/mars/net0"), of(Some("rack/sut"), "mars", Some("net0")));
    for text in ["ldm:mars", "ldm:mars/net0", "ldm:rack/sut/mars", "ldm:rack/sut/mars/net0", "ldm:primary"] {
        assert_eq!(text.parse::<Control>().map(|control| control.to_string()), Ok(text.to_owned()));
    }
    for text in ["ldm:", "ldm:Mars", "ldm:mars/", "ldm:/mars", "ldm:a/b/c/d/e", "ldm:a//b"] {
        assert!(text.parse::<Control>().is_err(), "{text}");
    }
}

#[test]
fn a_domain_without_a_host_is_of_the_one_that_is_named() {
    let host: LabHost = "rack/sut".parse().expect("a host");
    let placed = |text: &str| {
        let mut control: Control = text.parse().expect("an end");
        (control.place_in(&host), control.to_string())
    };
    assert_eq!(placed("ldm:mars/net0"), (true, "ldm:rack/sut/mars/net0".to_owned()));
    assert_eq!(placed("ldm:rack/peer/mars"), (false, "ldm:rack/peer/mars".to_owned()));
    assert_eq!(placed("local"), (false, "local".to_owned()));
    for text in ["", "rack", "rack/", "/sut", "rack/sut/mars", "Rack/sut"] {
        assert!(text.parse::<LabHost>().is_err(), "{text}");
    }
}

#[test]
fn a_libvirt_domain_may_have_any_name() {
    let read = |text: &str| match text.parse::<Control>() {
        Ok(Control::Libvirt { user, domain }) => Ok((user, domain)),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    };
    let of = |user: Option<&str>, domain: &str| Ok((user.map(str::to_owned), domain.to_owned()));
    assert_eq!(read("libvirt:web"), of(None, "web"));
    assert_eq!(read("libvirt:root@Web server.v2"), of(Some("root"), "Web server.v2"));
    assert_eq!(read("libvirt:root@vm@rack1:3"), of(Some("root"), "vm@rack1:3"));
    for text in ["libvirt:web", "libvirt:root@Web server.v2"] {
        assert_eq!(text.parse::<Control>().map(|control| control.to_string()), Ok(text.to_owned()));
    }
    for text in ["libvirt:", "libvirt:root@", "libvirt:@web", "libvirt:-oProxyCommand=x@web", "libvirt:a b@web"] {
        assert!(read(text).is_err(), "{text}");
    }
    insta::assert_snapshot!("control_character", read("libvirt:we\nb").expect_err("refused"));
}

#[test]
fn a_namespace_has_a_name_a_path_a_process_or_a_container() {
    for text in [
        "netns:blue",
        "netns:cni-3f0a b",
        "netns:/run/netns/blue",
        "pid:1",
        "pid:2147483647",
        "container:web",
        "docker:web_1.a-b",
        "podman:3f0a",
        "nerdctl:web",
        "crictl:3f0a",
    ] {
        let read = text.parse::<Control>();
        assert!(matches!(read, Ok(Control::Namespace(_))), "{text}: {read:?}");
        assert_eq!(read.map(|control| control.to_string()), Ok(text.to_owned()));
    }
    for (text, why) in [
        ("netns:", "no namespace is specified"),
        ("netns:..", "no namespace is specified"),
        ("netns:run/netns/blue", "is absolute"),
        ("netns:a\nb", "a control character"),
        ("pid:", "a number"),
        ("pid:0", "a number"),
        ("pid:+1", "a number"),
        ("pid:2147483648", "a number"),
        ("container:", "no container is specified"),
        ("docker:--help", "begins with a letter or digit"),
        ("podman:a/b", "only letters, digits"),
    ] {
        let told = text.parse::<Control>().expect_err(text).to_string();
        assert!(told.contains(why) && !told.contains(char::is_control), "{told}");
    }
    assert!("contaner:web".parse::<Control>().expect_err("a typo").to_string().contains("`container:web`"));
}

#[test]
fn a_pod_has_a_namespace_a_name_and_perhaps_a_container() {
    for text in ["pod:default/web-0", "pod:team.a/web/proxy", "pod:a/0"] {
        let read = text.parse::<Control>();
        assert!(matches!(read, Ok(Control::Pod(_))), "{text}: {read:?}");
        assert_eq!(read.map(|control| control.to_string()), Ok(text.to_owned()));
    }
    for (text, why) in [
        ("pod:", "pod:NAMESPACE/NAME"),
        ("pod:web", "pod:NAMESPACE/NAME"),
        ("pod:default/", "a name is missing"),
        ("pod:default/web/", "a name is missing"),
        ("pod:default/web/c/d", "pod:NAMESPACE/NAME"),
        ("pod:default/Web", "only a-z"),
        ("pod:default/--help", "begins and ends"),
        ("pod:-n/web", "begins and ends"),
        ("pod:default/web.", "begins and ends"),
        ("pod:default/a\nb", "only a-z"),
    ] {
        let told = text.parse::<Control>().expect_err(text).to_string();
        assert!(told.contains(why) && !told.contains(char::is_control), "{told}");
    }
    let long = format!("pod:default/{}", "a".repeat(254));
    assert!(long.parse::<Control>().expect_err("too long").to_string().contains("253"));
}

#[test]
fn a_pin_plan_is_a_word_or_cpus() {
    assert_eq!("0,2-4".parse(), Ok(Pinning::Cpus(vec![0, 2, 3, 4])));
    assert_eq!("auto".parse(), Ok(Pinning::Auto));
    assert_eq!("none".parse(), Ok(Pinning::Unpinned));
    for text in ["", "0,", "3-1", "x", "0-99999", "-1"] {
        assert!(text.parse::<Pinning>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parsers_panic(text: String) {
        let _ = (text.parse::<Control>(), text.parse::<Pinning>());
    }
}

fn row(name: &str) -> Row {
    name.parse().expect("a row")
}

fn vm(method: Option<&str>, end: End, host: &str) -> Endpoint {
    Endpoint { method: method.map(row), ..Endpoint::new(end, Control::Ssh(host.into())) }
}

fn named(endpoints: &[Endpoint], method: &str, mtu: Mtu) -> Result<Vec<String>, String> {
    let name = |pair: [&Endpoint; 2]| pair.map(|end| end.control.to_string().replace("ssh:", "")).join("-");
    let found = pairs(endpoints, row(method), mtu).map_err(|error| error.to_string())?;
    Ok(found.into_iter().map(name).collect())
}

#[test]
fn endpoints_pair_off_and_one_serves_all() {
    use End::{Initiator, Responder};
    let mut endpoints = vec![
        vm(None, Initiator, "load"),
        vm(Some("sr-iov"), Responder, "a"),
        vm(Some("bridge"), Responder, "b"),
        vm(Some("bridge"), Responder, "c"),
    ];
    let ethernet = Mtu::ETHERNET;
    assert_eq!(named(&endpoints, "sr-iov", ethernet), Ok(vec!["load-a".into()]));
    assert_eq!(named(&endpoints, "bridge", ethernet), Ok(vec!["load-b".into(), "load-c".into()]));
    assert!(named(&endpoints, "veth", ethernet).expect_err("none").contains("end = \"responder\""));
    endpoints.extend(["x", "y", "z"].map(|host| vm(Some("bridge"), Initiator, host)));
    assert!(named(&endpoints, "bridge", ethernet).expect_err("3 to 2").contains("3 initiators and 2 responders"));
    endpoints.pop();
    assert_eq!(named(&endpoints, "bridge", ethernet), Ok(vec!["x-b".into(), "y-c".into()]));
}

#[test]
fn an_endpoint_of_another_mtu_serves_not() {
    let jumbo = Mtu::try_from(9000).expect("possible");
    let on = |host: &str, mtu| Endpoint { mtu: Some(mtu), ..vm(None, End::Responder, host) };
    let endpoints = [vm(None, End::Initiator, "a"), on("b", Mtu::ETHERNET), on("c", jumbo)];
    assert_eq!(named(&endpoints, "native", Mtu::ETHERNET), Ok(vec!["a-b".into()]));
    assert_eq!(named(&endpoints, "native", jumbo), Ok(vec!["a-c".into()]));
    assert!(named(&endpoints[..2], "native", jumbo).is_err());
}

#[test]
fn a_file_of_endpoints_is_read_or_refused_with_its_line() {
    let read = |text: &str| Endpoint::parse_file(Source { name: "vms.toml", text }).map_err(|error| error.to_string());
    let good = "[[endpoint]]\nmethod = \"sr-iov\"\nend = \"initiator\"\ncontrol = \"ssh:root@vm1\"\n\
        address = \"192.0.2.1\"\nmtu = 1500\npin = \"2,3\"\n";
    let endpoint = read(good).expect("good").remove(0);
    assert_eq!((endpoint.method, endpoint.pin), (Some(row("sr-iov")), Some(Pinning::Cpus(vec![2, 3]))));
    let refused = |from: &str, to: &str| read(&good.replace(from, to)).expect_err("refused");
    insta::assert_snapshot!("unknown_end", refused("\"initiator\"", "\"client\""));
    insta::assert_snapshot!("unknown_control", refused("ssh:root@vm1", "vm1"));
    insta::assert_snapshot!("unknown_key", refused("pin", "pins"));
    insta::assert_snapshot!("not_an_address", refused("192.0.2.1", "vm1"));
    insta::assert_snapshot!("not_a_pin_plan", refused("2,3", "2;3"));
    insta::assert_snapshot!("no_endpoint", read("# nothing\n").expect_err("empty"));
}

#[test]
fn a_plan_is_for_both_ends_or_for_each() {
    for text in ["auto", "none", "0,1", "0,1:2,3", "auto:none"] {
        assert_eq!(text.parse::<Pins>().map(|pins| pins.to_string()), Ok(text.to_owned()));
    }
    for text in ["", ":", "0:", "0:1:2", "0;1"] {
        assert!(text.parse::<Pins>().is_err(), "{text}");
    }
}

#[test]
fn similar_endpoints_are_suggested() {
    let told = |text: &str| text.parse::<Control>().expect_err("no endpoint").to_string();
    assert!(told("127.0.0.1").contains("did you mean `local`, or `ssh:127.0.0.1`?"), "{}", told("127.0.0.1"));
    assert!(told("192.0.2.7").contains("did you mean `ssh:192.0.2.7`?"));
    assert!(told("locl").contains("did you mean `local`?"));
    assert!(told("shh:vm1").contains("did you mean `ssh:vm1`?"));
    assert!(told("vm1").contains("`ssh:vm1`, or `zone:vm1`"));
    assert!(told("").starts_with("invalid endpoint `` (endpoints are local"), "{}", told(""));
}

/// A text of 16 KiB once took 64 MiB of memory.
#[test]
fn repeated_cpus_are_an_invalid_plan() {
    assert!("0-8191".parse::<Pinning>().is_ok() && "0,1,0,1".parse::<Pinning>().is_ok());
    assert!(["0-8191"; 2].join(",").parse::<Pinning>().is_err());
}

#[test]
fn a_device_has_a_name_that_the_kernel_takes() {
    let is_name = |text: &str| text.parse::<DeviceName>().is_ok_and(|name| name.to_string() == text);
    assert!(["lo", "eth0", "enp0s31f6", "vlan.7", "exactly-15-byte"].into_iter().all(is_name));
    assert!(!["", ".", "..", "a/b", "a b", "eth0:1", "more-than-15-byt", "a\u{7}"].into_iter().any(is_name));
}
