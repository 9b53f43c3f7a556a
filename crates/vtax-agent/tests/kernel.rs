//! Setup of links as in a guest, in namespaces that end with the test. Requires root.

use std::{
    os::unix::net::UnixStream,
    thread::{self, JoinHandle},
    time::Duration,
};

use vtax_agent::server::{AgentRights, Measuring, serve};
use vtax_model::units::Mtu;
use vtax_sys::{
    netlink::{IfName, Link, LinkChange, LinkKind, NewLink, Rtnl},
    netns::NetNs,
    sysctl,
};
use vtax_wire::{
    link::{AgentError, AgentLink},
    protocol::{Attached, FaultKind, LinkSetup},
};

const SOON: Duration = Duration::from_secs(300);

fn name(text: &str) -> IfName {
    text.parse().expect("a name")
}

/// An agent in a namespace, which stands for its guest.
struct Guest {
    namespace: NetNs,
    host: NetNs,
    link: Option<AgentLink>,
    agent: Option<JoinHandle<()>>,
}

/// Returns a guest connected by a veth: `nic` in the guest, `tap` on the host.
fn guest() -> Guest {
    let scratch = || NetNs::scratch().expect("these tests need root");
    let (namespace, host) = (scratch(), scratch());
    let kind = LinkKind::Veth { peer: name("tap"), peer_ns: Some(&host), peer_mtu: Some(9000) };
    let mut kernel = Rtnl::open_in(&namespace).expect("opened");
    kernel.create_link(&NewLink::new(name("nic"), kind)).expect("made");
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let agent = namespace.run(|| {
        let reader = theirs.try_clone().expect("cloned");
        // New threads are in the namespace of the thread that starts them.
        thread::spawn(move || drop(serve(reader, theirs, Measuring::default(), AgentRights::Guest)))
    });
    let reader = ours.try_clone().expect("cloned");
    let link = AgentLink::from_streams("guest stage", reader, ours, SOON).expect("greeted");
    Guest { namespace, host, link: Some(link), agent: Some(agent.expect("started")) }
}

impl Guest {
    fn attach(&self, mac: &str, mtu: i64, addresses: &[&str]) -> Result<Attached, AgentError> {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        let mtu = Mtu::try_from(mtu).expect("possible");
        self.link.as_ref().expect("greeted").attach(&LinkSetup { mac: mac.into(), mtu, addresses })
    }

    fn nic(&self) -> Link {
        Rtnl::open_in(&self.namespace).expect("opened").existing_link(&name("nic")).expect("there")
    }

    fn mac(&self) -> String {
        self.nic().mac.expect("an Ethernet link").to_string()
    }

    fn addresses(&self) -> Vec<String> {
        let index = self.nic().index;
        let all = Rtnl::open_in(&self.namespace).expect("opened").addresses().expect("read");
        all.into_iter().filter(|address| address.link == index).map(|address| address.net.to_string()).collect()
    }

    fn plug_in(&self) {
        let up = LinkChange { up: Some(true), ..LinkChange::default() };
        Rtnl::open_in(&self.host).expect("opened").set_link(&name("tap"), &up).expect("up");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The agent reads a clone of its stream, so the stream must be shut down explicitly.
        if let Some(link) = self.link.take() {
            let _ = link.call(vtax_wire::protocol::Request::Shutdown).and_then(|reply| reply.wait(SOON));
        }
        if let Some(agent) = self.agent.take() {
            let _ = agent.join();
        }
    }
}

#[test]
fn a_link_gets_what_it_lacks_and_only_that() {
    let guest = guest();
    guest.plug_in();
    let mac = guest.mac();
    let attached = guest.attach(&mac, 9000, &["198.51.100.2/24"]).expect("attached");
    assert_eq!(attached, Attached { name: "nic".into(), driver: Some("veth".into()) });
    let nic = guest.nic();
    assert_eq!((nic.mtu, nic.up, nic.lower_up), (9000, true, true));
    assert_eq!(guest.addresses(), ["198.51.100.2/24"]);
    let key = "net/ipv6/conf/nic/disable_ipv6".parse().expect("a key");
    assert_eq!(sysctl::read(&guest.namespace, &key).expect("there"), "1");

    guest.attach(&mac.to_uppercase(), 1500, &["198.51.100.2/24", "198.51.100.3/24"]).expect("attached");
    assert_eq!((guest.nic().mtu, guest.nic().index), (1500, nic.index));
    assert_eq!(guest.addresses(), ["198.51.100.2/24", "198.51.100.3/24"]);

    guest.attach(&mac, 1500, &["2001:db8::2/64"]).expect("attached");
    assert_eq!(sysctl::read(&guest.namespace, &key).expect("there"), "0");
    assert!(guest.addresses().contains(&"2001:db8::2/64".to_owned()), "{:?}", guest.addresses());
}

#[test]
fn a_link_that_comes_late_is_waited_for() {
    let guest = guest();
    guest.plug_in();
    let mac = guest.mac();
    let elsewhere = NetNs::scratch().expect("made");
    let into = |namespace| LinkChange { into_ns: Some(namespace), ..LinkChange::default() };
    let mut inside = Rtnl::open_in(&guest.namespace).expect("opened");
    inside.set_link(&name("nic"), &into(&elsewhere)).expect("moved");
    thread::scope(|scope| {
        let attached = scope.spawn(|| guest.attach(&mac, 1500, &[]));
        thread::sleep(Duration::from_millis(200));
        assert!(!attached.is_finished(), "there is no such link yet");
        let mut outside = Rtnl::open_in(&elsewhere).expect("opened");
        outside.set_link(&name("nic"), &into(&guest.namespace)).expect("moved");
        assert_eq!(attached.join().expect("no panic").expect("attached").name, "nic");
    });
}

#[test]
fn a_link_without_a_carrier_is_named() {
    let guest = guest();
    let dead = guest.attach(&guest.mac(), 1500, &[]).expect_err("nobody at the other end").to_string();
    assert!(dead.contains("nic") && dead.contains("no carrier"), "{dead}");
}

#[test]
fn a_missing_link_is_reported_with_those_that_are_there() {
    let guest = guest();
    let missing = guest.attach("02:00:00:00:be:ef", 1500, &[]).expect_err("no such link");
    let AgentError::Refused { fault, .. } = &missing else { panic!("{missing:?}") };
    assert_eq!(fault.kind, FaultKind::System);
    for part in ["02:00:00:00:be:ef", "nic", &guest.mac(), "driver"] {
        assert!(fault.message.raw().contains(part), "no {part} in: {fault}");
    }
}
