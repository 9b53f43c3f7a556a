//! The networks of domains, captured on the wire and in the domains: the article's matrix of VLANs, the MTU of a
//! switch, nested interfaces with their own addresses, and frames from addresses of other owners.
//!
//! This program sends and listens in the domains and at the far end of the cable, which is the wire.

use std::env;

use super::{
    FAR, Server,
    bench::wait_until,
    frames::{AT_LINK, LISTENING, SeenFrame, SentFrame},
};

const MTU: usize = 9000;
const WIRE: &str = "02:14:4f:00:00:01";
const VENUS: &str = "02:14:4f:00:00:02";
const MARS: &str = "02:14:4f:00:00:03";
/// Addresses of an interface in mars: the first also belongs to mars, the second to nobody, and the third replaces the
/// first.
const LISTED: &str = "02:14:4f:00:00:07";
const RANDOM: &str = "02:5e:ed:00:00:07";
const OTHER: &str = "02:14:4f:00:00:08";

const TAGS: [Option<u16>; 5] = [None, Some(11), Some(22), Some(33), Some(44)];

pub(crate) fn on_the_wire(server: &Server) {
    let network = Network::new(server);
    network.commands_run_in_domains();
    network.the_mtu_is_that_of_the_switch();
    network.each_vlan_comes_where_it_should();
    network.a_nested_interface_needs_an_address_of_the_list();
    network.down();
}

/// The article's two domains on a switch whose uplink is the cable.
struct Network<'a> {
    server: &'a Server,
    near: String,
    far: String,
}

/// Place where frames are sent and seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Wire,
    Venus,
    Mars,
}

impl Place {
    const ALL: [Place; 3] = [Place::Wire, Place::Venus, Place::Mars];

    fn name(self) -> &'static str {
        match self {
            Place::Wire => "wire",
            Place::Venus => "venus",
            Place::Mars => "mars",
        }
    }

    fn mac(self) -> &'static str {
        match self {
            Place::Wire => WIRE,
            Place::Venus => VENUS,
            Place::Mars => MARS,
        }
    }
}

impl Network<'_> {
    /// Configures the domains, which later fetch this program from their host over these networks.
    fn new(server: &Server) -> Network<'_> {
        let near = server.near();
        let far = server.shell(&format!("basename $(dirname $(grep -l {FAR} /sys/class/net/*/address))"));
        let network = Network { server, near, far: far.trim().to_owned() };
        let Network { near, far, .. } = &network;
        server.shell(&format!("ip link set {near} mtu {MTU}; ip link set {far} mtu {MTU} up"));
        network.ldm(&format!("add-vsw net-dev={near} admin-vsw primary"));
        network.ldm(&format!("set-vsw mtu={MTU} admin-vsw primary"));
        network.ldm("create mars venus");
        for domain in ["mars", "venus"] {
            network.ldm(&format!("set-vcpu 1 {domain}"));
            network.ldm(&format!("set-memory 192m {domain}"));
        }
        network.ldm(&format!("add-vnet mac-addr={MARS} pvid=1 vid=11,22,33 admin-net admin-vsw mars"));
        network.ldm(&format!("add-vnet mac-addr={VENUS} pvid=33 vid=44 admin-net admin-vsw venus"));
        network
    }

    /// Tests `vtax ldm exec`, and starts the domains for it.
    fn commands_run_in_domains(&self) {
        let refused = |domain: &str| self.server.refused(&["ldm", "exec", domain, "--", "true"]);
        assert!(refused("mars").contains("mars is inactive; bind and start it first"));
        self.ldm("bind mars venus");
        assert!(refused("mars").contains("mars is bound; start it first"));
        self.ldm("start mars venus");
        for domain in ["mars", "venus"] {
            // The first command also waits for the agent.
            assert_eq!(self.inside(domain, "cat /sys/class/net/eth0/address").trim(), self.mac_of(domain));
        }
    }

    /// Copies this program over the networks: to mars in VLAN 1 from the host, and from there to venus in VLAN 33,
    /// which is tagged in mars and untagged in venus. This shows that they can reach each other.
    fn the_mtu_is_that_of_the_switch(&self) {
        for domain in ["mars", "venus"] {
            assert_eq!(self.inside(domain, "cat /sys/class/net/eth0/mtu").trim(), MTU.to_string(), "{domain}");
        }
        self.server.shell("ip address add 192.0.2.1/24 dev admin-vsw; ip link set admin-vsw up");
        self.inside("mars", "ip address add 192.0.2.2/24 dev eth0; ip link set eth0 up");
        self.inside(
            "mars",
            "ip link add link eth0 name vnet33 type vlan id 33; ip address add 198.51.100.2/24 dev vnet33; ip link set vnet33 up",
        );
        self.inside("venus", "ip address add 198.51.100.3/24 dev eth0; ip link set eth0 up");
        let program = env::current_exe().expect("this program");
        let (folder, bytes) = (program.parent().expect("its folder"), program.metadata().expect("a file").len());
        let name = program.file_name().and_then(|name| name.to_str()).expect("text");
        let serve = format!("busybox httpd -f -p 7000 -h {} >/dev/null 2>&1 & echo $! >/run/serves", folder.display());
        self.server.shell(&serve);
        for (domain, file) in [("mars", format!("192.0.2.1:7000/{name}")), ("venus", "198.51.100.2:7000/frames".into())]
        {
            self.inside(domain, &format!("wget -q -O /frames http://{file} && chmod +x /frames"));
            assert_eq!(self.inside(domain, "wc -c </frames").trim(), bytes.to_string(), "{domain} has all of it");
            self.inside(domain, "httpd -p 7000 -h /");
        }
        self.server.shell("kill $(cat /run/serves)");
        // The MTU includes 20 bytes of IPv4 and 8 of ICMP, but not the tag.
        let ping = format!("ping -c 3 -W 10 -s {} ", MTU - 28);
        assert!(self.inside("mars", &format!("{ping} 192.0.2.1")).contains(" 0% packet loss"));
        assert!(self.inside("venus", &format!("{ping} 198.51.100.2")).contains(" 0% packet loss"));
    }

    /// Sends a frame with each tag from each place, of minimum and of maximum size, and checks who receives it with
    /// which tag. No other frame may arrive anywhere.
    fn each_vlan_comes_where_it_should(&self) {
        let text = |from: Place, tag: Option<u16>, length: &str| format!("{} {tag:?} {length}", from.name());
        self.listen();
        for from in Place::ALL {
            let frames = TAGS.map(|tag| {
                let short = SentFrame::new(from.mac(), tag, &text(from, tag, "short"));
                [short, SentFrame { bytes: MTU, ..SentFrame::new(from.mac(), tag, &text(from, tag, "long")) }]
            });
            self.send(from, frames.as_flattened());
        }
        let [wire, venus, mars] = [
            &[
                (33, Place::Venus, 0),
                (33, Place::Venus, 33),
                (44, Place::Venus, 44),
                (0, Place::Mars, 0),
                (11, Place::Mars, 11),
                (22, Place::Mars, 22),
                (33, Place::Mars, 33),
            ][..],
            &[(0, Place::Wire, 33), (44, Place::Wire, 44), (0, Place::Mars, 33)],
            &[
                (0, Place::Wire, 0),
                (11, Place::Wire, 11),
                (22, Place::Wire, 22),
                (33, Place::Wire, 33),
                (33, Place::Venus, 0),
                (33, Place::Venus, 33),
            ],
        ]
        .map(|expected| {
            let seen = expected.iter().flat_map(|&(tag, from, sent)| {
                let some = |tag: u16| (tag > 0).then_some(tag);
                ["short", "long"].map(|length| (some(tag), text(from, some(sent), length)))
            });
            let mut seen: Vec<_> = seen.collect();
            seen.sort();
            seen
        });
        let whole = |seen: SeenFrame| {
            assert!(!seen.text.ends_with("long") || seen.bytes == MTU, "a part of it came: {seen:?}");
            (seen.tag, seen.text)
        };
        for (place, expected) in [(Place::Wire, wire), (Place::Venus, venus), (Place::Mars, mars)] {
            let count = expected.len();
            let seen: Vec<_> = self.seen(place, count).into_iter().map(whole).collect();
            assert_eq!(seen, expected, "what {} has seen", place.name());
        }
        assert_eq!(self.dropped(), [0, 0], "all of them were from own addresses");
        self.frames_from_addresses_of_others_come_nowhere();
        self.a_vlan_goes_and_comes_while_the_domain_runs();
        self.end_listening();
    }

    fn frames_from_addresses_of_others_come_nowhere(&self) {
        let before = Place::ALL.map(|place| self.seen(place, 0).len());
        let spoofed = TAGS.map(|tag| SentFrame::new(VENUS, tag, "not of mars"));
        self.send(Place::Mars, &spoofed);
        // In VLAN 33 this frame reaches the other two places, after the spoofed ones.
        self.send(Place::Mars, &[SentFrame::new(MARS, Some(33), "of mars")]);
        for (place, count) in Place::ALL.into_iter().zip(before) {
            let more = if place == Place::Mars { 0 } else { 1 };
            let seen = self.seen(place, count + more);
            assert!(!seen.iter().any(|frame| frame.text == "not of mars"), "{} has seen it: {seen:?}", place.name());
        }
        assert_eq!(self.dropped(), [TAGS.len() as u64, 0]);
    }

    fn a_vlan_goes_and_comes_while_the_domain_runs(&self) {
        let frame = |tag: u16, text: &str| SentFrame::new(WIRE, Some(tag), text);
        let before = self.seen(Place::Mars, 0).len();
        self.ldm("set-vnet vid=11,33 admin-net mars");
        self.send(Place::Wire, &[frame(22, "gone"), frame(11, "stays")]);
        let seen = self.seen(Place::Mars, before + 1);
        assert!(
            seen.iter().any(|frame| frame.text == "stays") && seen.iter().all(|frame| frame.text != "gone"),
            "{seen:?}"
        );
        self.ldm("set-vnet vid=11,22,33 admin-net mars");
        self.send(Place::Wire, &[frame(22, "back")]);
        let seen = self.seen(Place::Mars, before + 2);
        assert!(seen.iter().any(|frame| frame.text == "back" && frame.tag == Some(22)), "{seen:?}");
    }

    /// Tests macvlan interfaces in mars, as a zone has them: one with an address of `alt-mac-addrs`, and one with
    /// another address. The list changes while mars runs.
    fn a_nested_interface_needs_an_address_of_the_list(&self) {
        self.server.shell("ip address add 203.0.113.1/24 dev admin-vsw");
        // Each interface answers only for its own addresses.
        self.inside("mars", "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore");
        for (zone, mac, address) in [("zone1", LISTED, "203.0.113.2/32"), ("zone2", RANDOM, "203.0.113.3/32")] {
            self.inside(
                "mars",
                &format!(
                    "ip link add link eth0 address {mac} name {zone} type macvlan; echo 1 \
                     >/proc/sys/net/ipv6/conf/{zone}/disable_ipv6; ip address add {address} dev {zone}; \
                     ip link set {zone} up"
                ),
            );
        }
        let reaches = |zone: &str| {
            self.inside("mars", "ip route flush root 203.0.113.0/24 2>/dev/null; true");
            let ping = format!("ip route add 203.0.113.0/24 dev {zone}; ping -c 3 -W 3 -I {zone} 203.0.113.1; true");
            let answered = self.inside("mars", &ping);
            self.inside("mars", &format!("ip route del 203.0.113.0/24 dev {zone}"));
            assert!(answered.contains("packets transmitted"), "{answered}");
            !answered.contains(" 0 packets received")
        };
        let before = self.dropped();
        assert!(!reaches("zone1"), "its address isn't in the list yet");
        self.ldm(&format!("set-vnet alt-mac-addrs={LISTED},auto admin-net mars"));
        let without = self.dropped();
        assert!(without[0] > before[0], "{before:?} {without:?}");
        assert!(reaches("zone1"), "its address is in the list");
        assert_eq!(self.dropped(), without, "nothing of a listed address is dropped");
        assert!(!reaches("zone2"), "its address is in no list");
        let random = self.dropped();
        assert!(random[0] > without[0] && random[1] == 0, "{without:?} {random:?}");
        self.ldm(&format!("set-vnet alt-mac-addrs={OTHER} admin-net mars"));
        assert!(!reaches("zone1"), "its address isn't in the list any more");
        assert!(self.dropped()[0] > random[0]);
        let listed = self.ldm("list -o network mars");
        assert!(listed.contains(OTHER) && !listed.contains(LISTED) && !listed.contains("pending"), "{listed}");
    }

    fn down(self) {
        let Network { server, near, far } = &self;
        self.ldm("stop mars venus");
        self.ldm("unbind mars venus");
        self.ldm("remove-domain mars venus");
        self.ldm("remove-vsw admin-vsw");
        server.shell(&format!("ip link set {near} mtu 1500 down; ip link set {far} mtu 1500 down"));
    }

    fn ldm(&self, words: &str) -> String {
        self.server.printed(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    }

    fn inside(&self, domain: &str, command: &str) -> String {
        self.server.printed(&["ldm", "exec", domain, "--", "sh", "-c", command])
    }

    fn mac_of(&self, domain: &str) -> &'static str {
        Place::ALL.into_iter().find(|place| place.name() == domain).expect("a place").mac()
    }

    /// Runs a command at a place, with `$frames` as the path of this program and `$link` as the link.
    fn at(&self, place: Place, command: &str) -> String {
        match place {
            Place::Wire => {
                let program = env::current_exe().expect("this program");
                self.server.shell(&format!("frames={}; link={}; {command}", program.display(), self.far))
            }
            _ => self.inside(place.name(), &format!("frames=/frames; link=eth0; {command}")),
        }
    }

    fn listen(&self) {
        for place in Place::ALL {
            self.at(place, &format!("{AT_LINK}=$link $frames >/tmp/seen 2>&1 & echo $! >/tmp/listens"));
            wait_until(&format!("{} listens", place.name()), || {
                let told = self.at(place, "cat /tmp/seen");
                assert!(told.is_empty() || told.starts_with(LISTENING), "{told}");
                !told.is_empty()
            });
        }
    }

    fn end_listening(&self) {
        Place::ALL.into_iter().for_each(|place| drop(self.at(place, "kill $(cat /tmp/listens)")));
    }

    fn send(&self, place: Place, frames: &[SentFrame]) {
        let arguments: Vec<String> = frames.iter().map(|frame| format!("'{}'", frame.argument())).collect();
        self.at(place, &format!("{AT_LINK}=$link $frames {}", arguments.join(" ")));
    }

    /// Returns the frames that arrived at a place: at least this many, and all that arrive in the meantime.
    fn seen(&self, place: Place, count: usize) -> Vec<SeenFrame> {
        let look = || SeenFrame::of_lines(&self.at(place, "cat /tmp/seen"));
        let mut seen = look();
        for _ in 0..5 {
            let again = look();
            if again.len() >= count && again == seen {
                break;
            }
            seen = again;
        }
        seen
    }

    /// Returns the number of frames that mars and venus sent from addresses not their own, as `list-bindings` shows it.
    fn dropped(&self) -> [u64; 2] {
        ["mars", "venus"].map(|domain| {
            let told = self.ldm(&format!("list-bindings {domain}"));
            let line = told.lines().find(|line| line.trim_start().starts_with("admin-net: link ")).expect("its vnet");
            let (_, count) = line.split_once("; ").expect("a count");
            let count = count.strip_suffix(" frames with foreign source addresses dropped");
            count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count: {line}"))
        })
    }
}
