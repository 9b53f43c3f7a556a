//! Macvtaps, in namespaces that end with the test. Requires root of the machine, and a `/dev` maintained by the kernel.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vtax_sys::SysError;
use vtax_sys::netlink::{
    IfIndex, IfName, LinkChange, LinkKind, MacAddr, NewLink, NewMacvtap, Rtnl, open_macvtap, probe_macvtap,
};
use vtax_sys::netns::NetNs;

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}

fn mac(last: u8) -> MacAddr {
    // It contains the pid, because several of these tests may run simultaneously.
    let [_, _, b, c] = std::process::id().to_be_bytes();
    MacAddr([0x02, 0x16, 0x3e, b, c, last])
}

fn device(index: IfIndex) -> PathBuf {
    PathBuf::from(format!("/dev/tap{}", index.0))
}

/// Returns a namespace with both ends of a wire, up.
fn wired() -> (NetNs, Rtnl, IfIndex) {
    let ns = NetNs::scratch().expect("these tests need root");
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    let kind = LinkKind::Veth { peer: name("far"), peer_ns: None, peer_mtu: None };
    rtnl.create_link(&NewLink::new(name("wire"), kind)).unwrap();
    for end in ["wire", "far"] {
        rtnl.set_link(&name(end), &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
    }
    let parent = rtnl.existing_link(&name("wire")).unwrap().index;
    (ns, rtnl, parent)
}

fn macvtap(parent: IfIndex, mac: MacAddr) -> NewMacvtap {
    NewMacvtap { name: name("vnet0"), parent, mac, mtu: 1500 }
}

#[test]
fn a_macvtap_delivers_frames_to_its_opener() {
    let (ns, mut rtnl, parent) = wired();
    let index = macvtap(parent, mac(1)).create(&mut rtnl).unwrap();
    let link = rtnl.existing_link(&name("vnet0")).unwrap();
    assert_eq!((link.index, link.kind.as_deref(), link.mac), (index, Some("macvtap"), Some(mac(1))));
    rtnl.set_link(&name("vnet0"), &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
    let mut queues = open_macvtap(&mut rtnl, &name("vnet0"), mac(1), 2).unwrap();
    // Only one queue is left, so the frame must arrive there.
    queues.truncate(1);

    let far = rtnl.existing_link(&name("far")).unwrap().index;
    rtnl.add_address(far, "192.0.2.1/24".parse().unwrap()).unwrap();
    let sent = ns.run(|| {
        let socket = UdpSocket::bind("192.0.2.1:0")?;
        socket.set_broadcast(true)?;
        socket.send_to(b"to all of them", "192.0.2.255:9")
    });
    assert_eq!(sent.unwrap().unwrap(), 14);
    let queue = queues.pop().unwrap();
    let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
    while let mut ready = [PollFd::new(&queue, PollFlags::IN)]
        && poll(&mut ready, Some(&patience)).unwrap() == 1
    {
        let mut frame = [0; 2048];
        let length = rustix::io::read(&queue, &mut frame).unwrap();
        if frame[..length].ends_with(b"to all of them") {
            // A virtio-net header of ten bytes, Ethernet, IPv4, UDP.
            assert_eq!(length, 10 + 14 + 20 + 8 + 14);
            return;
        }
    }
    panic!("the frame didn't come");
}

#[test]
fn two_macvtaps_with_one_index_have_separate_files() {
    let ((_ns, mut rtnl, parent), (_other_ns, mut other, other_parent)) = (wired(), wired());
    assert_eq!(parent, other_parent, "namespaces count alike");
    let first = macvtap(parent, mac(2)).create(&mut rtnl).unwrap();
    let second = macvtap(other_parent, mac(2)).create(&mut other).unwrap();
    assert_ne!(first, second);
    for (rtnl, index) in [(&mut rtnl, first), (&mut other, second)] {
        assert!(device(index).exists());
        assert_eq!(open_macvtap(rtnl, &name("vnet0"), mac(2), 1).unwrap().len(), 1);
    }
}

#[test]
fn a_file_of_another_link_is_refused() {
    let ((_ns, mut rtnl, parent), (_other_ns, mut other, other_parent)) = (wired(), wired());
    let index = macvtap(parent, mac(3)).create(&mut rtnl).unwrap();
    // A program that is unaware of the first one would do the same.
    let kind = LinkKind::Macvtap { parent: other_parent };
    let link = NewLink { index: Some(index), mac: Some(mac(4)), ..NewLink::new(name("vnet0"), kind) };
    other.create_link(&link).unwrap();
    let error = open_macvtap(&mut other, &name("vnet0"), mac(4), 1).unwrap_err();
    assert!(matches!(error, SysError::NoQueue { foreign: true, .. }), "{error}");
    assert!(error.to_string().contains("another network namespace"), "{error}");
}

#[test]
fn the_file_is_removed_with_the_namespace() {
    let (ns, mut rtnl, parent) = wired();
    let index = macvtap(parent, mac(5)).create(&mut rtnl).unwrap();
    let queues = open_macvtap(&mut rtnl, &name("vnet0"), mac(5), 1).unwrap();
    drop((rtnl, ns));
    let end = Instant::now() + Duration::from_secs(300);
    while device(index).exists() {
        assert!(Instant::now() < end, "an open queue keeps the namespace");
        thread::sleep(Duration::from_millis(5));
    }
    drop(queues);
}

#[test]
fn the_probe_finds_them_available() {
    probe_macvtap().expect("these tests need root and a devtmpfs");
}
