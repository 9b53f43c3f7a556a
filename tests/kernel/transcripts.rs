//! The transcripts of the articles on logical domains that this kernel can show, replayed on hosts of labs.

use std::fs;

use serde_json::{Value, json};

use super::{
    Bench,
    bench::wait_until,
    domains::Host,
    transcript::{self, Names},
};

fn replay(host: &Host<'_>, transcript: &str, names: Names<'_>, check: impl Fn(&str)) {
    transcript::replay(transcript, names, |command| match command.split_once(' ') {
        Some(("ldm", words)) => host.ldm(words),
        Some(("check", what)) => {
            check(what);
            String::new()
        }
        Some(("mtu", words)) => {
            let (link, mtu) = words.split_once(' ').expect("two words");
            host.bench.printed(&["lab", "exec", host.lab, "sut", "--", "ip", "link", "set", link, "mtu", mtu])
        }
        Some(("telnet", words)) => telnet(host, words),
        _ => panic!("no such command: {command}"),
    });
}

#[test]
fn differences_from_an_article_are_found() {
    transcript::check_itself();
}

/// Constraints as set in part 4. The tests on the emulated server check where frames go.
#[test]
fn networks_are_set_as_the_article_sets_them() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-art-4");
    host.ldm("create mars venus");
    let vnet = |domain: &str| host.domain(domain)["constraints"]["vnets"][0].clone();
    let automatic = |vnet: &Value| vnet["mac"].as_str().expect("an address").to_owned();
    let check = |what: &str| {
        let (mars, venus) = (vnet("mars"), vnet("venus"));
        match what {
            "plain" => {
                assert_eq!(mars["mac"], "00:14:4f:f9:c4:13", "octets of one digit");
                assert_ne!(automatic(&venus), automatic(&mars));
                let switch: Value = serde_json::from_str(&host.ldm("list-constraints --json")).expect("JSON");
                assert_eq!(switch["switches"]["admin-vsw"]["mtu"], 9000);
                assert!(host.refused("add-vnet admin-net admin-vsw mars").contains("admin-net"), "it is there");
                for mtu in ["1499", "16001"] {
                    assert!(host.refused(&format!("set-vsw mtu={mtu} admin-vsw primary")).contains("16000"), "{mtu}");
                }
            }
            "vlans" => {
                assert_eq!((&mars["pvid"], &mars["vids"]), (&json!(1), &json!([11, 22, 33])), "{mars}");
                assert_eq!((&venus["pvid"], &venus["vids"]), (&json!(33), &json!([44])), "{venus}");
            }
            _ => assert_eq!(venus["id"], 1, "{venus}"),
        }
    };
    replay(&host, include_str!("../transcripts/4-networking.txt"), &[("nxge2", "wire0")], check);
}

#[test]
fn lists_of_domains_are_as_in_the_article() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-art-5");
    host.ldm("add-vcc port-range=5000-5100 console primary");
    host.ldm("add-vsw vsw0 primary");
    ["mars", "venus", "jupiter"].iter().for_each(|domain| host.add(domain));
    for words in ["create pluto", "set-vcpu 4 pluto", "set-memory 4g pluto"] {
        host.ldm(words);
    }
    for domain in ["mars", "venus"] {
        host.ldm(&format!("bind {domain}"));
        host.ldm(&format!("start {domain}"));
        host.wait_for_boot(domain);
    }
    host.ldm("bind jupiter");
    let here = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    replay(&host, include_str!("../transcripts/5-consoles.txt"), &[("sun", here.trim_end())], |_| {});
}

/// Returns what a console port of the lab's host prints after this input. The service polls for bound domains twice per
/// second.
fn telnet(host: &Host<'_>, words: &str) -> String {
    let mut words = words.split(' ');
    let port = words.next().expect("a port");
    let keys: String = words.map(|line| format!("printf '{line}\\r'; sleep 1; ")).collect();
    let script = format!("(sleep 1; {keys}) | busybox nc 127.0.0.1 {port}");
    let mut shown = String::new();
    wait_until("the console is reached", || {
        let output = host.bench.vtax(&["lab", "exec", host.lab, "sut", "--", "sh", "-c", &script]);
        shown = without_telnet(&output.stdout);
        // The group has no menu until the service knows both domains.
        shown.contains("q:") && shown.contains("Press ~?")
    });
    shown
}

/// Returns the text without telnet's own commands, which are IAC, a verb and an option (RFC 854).
fn without_telnet(bytes: &[u8]) -> String {
    const IAC: u8 = 255;
    let mut text = Vec::new();
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            &IAC => drop(bytes.nth(1)),
            b'\r' | 0 => {}
            byte => text.push(*byte),
        }
    }
    String::from_utf8(text).expect("text")
}

#[test]
fn memory_is_listed_as_in_the_article() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-art-6");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("bind mars");
    replay(&host, include_str!("../transcripts/6-sizing.txt"), &[], |_| {});
}
