//! Switches served by this guest: a bridge connects its NIC at the host's switch with another of its links.
//!
//! They are named on the kernel's command line, so they exist again after each boot of the guest.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use vtax_sys::{
    SysError,
    netlink::{IfIndex, IfName, Link, LinkChange, LinkKind, MacAddr, NewLink, Rtnl},
};

/// Kernel parameter: the bridge's name, the address of the NIC at the host's switch, the other link, and the MTU.
const PARAMETER: &str = "vtax.switch=";
/// Time limit for a driver to create its links after it was loaded.
const PATIENCE: Duration = Duration::from_secs(10);
const PACE: Duration = Duration::from_millis(50);

/// Switch as described on the command line.
#[derive(Debug, PartialEq, Eq)]
struct Served {
    bridge: IfName,
    near: MacAddr,
    /// Name or address.
    far: String,
    mtu: u32,
}

/// Creates the bridges. Failures are reported to `say`; the guest continues with its other work.
pub(super) fn connect(say: impl Fn(&str)) {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    for parameter in line.split_ascii_whitespace().filter_map(|word| word.strip_prefix(PARAMETER)) {
        let Some(served) = read(parameter) else {
            say(&format!("invalid {PARAMETER}{parameter}: use BRIDGE,ADDRESS,LINK,MTU"));
            continue;
        };
        match make(&served) {
            Ok(()) => say(&format!("serving switch {} through {}", served.bridge, served.far)),
            Err(error) => say(&format!("cannot serve switch {}: {error}", served.bridge)),
        }
    }
}

fn read(parameter: &str) -> Option<Served> {
    let [bridge, near, far, mtu] = parameter.split(',').collect::<Vec<_>>().try_into().ok()?;
    Some(Served { bridge: bridge.parse().ok()?, near: near.parse().ok()?, far: far.to_owned(), mtu: mtu.parse().ok()? })
}

fn make(served: &Served) -> Result<(), SysError> {
    let mut kernel = Rtnl::open()?;
    let ports = [served.near.to_string(), served.far.clone()];
    let ports = ports.map(|link| await_link(&mut kernel, &link));
    kernel.create_link(&NewLink { mtu: Some(served.mtu), ..NewLink::new(served.bridge.clone(), LinkKind::Bridge) })?;
    let bridge = kernel.existing_link(&served.bridge)?.index;
    for port in ports {
        join(&mut kernel, port?, bridge, served.mtu)?;
    }
    kernel.set_link(bridge, &LinkChange { up: Some(true), ..LinkChange::default() })
}

fn join(kernel: &mut Rtnl, port: IfIndex, bridge: IfIndex, mtu: u32) -> Result<(), SysError> {
    let change = LinkChange { mtu: Some(mtu), master: Some(Some(bridge)), up: Some(true), ..LinkChange::default() };
    kernel.set_link(port, &change)
}

/// Waits for the link with this name or address.
fn await_link(kernel: &mut Rtnl, wanted: &str) -> Result<IfIndex, SysError> {
    let until = Instant::now() + PATIENCE;
    let is_it = |link: &Link| link.name.as_str() == wanted || link.mac.is_some_and(|mac| mac.to_string() == wanted);
    loop {
        if let Some(link) = kernel.links()?.iter().find(|link| is_it(link)) {
            return Ok(link.index);
        }
        if Instant::now() > until {
            return Err(SysError::NoSuchLink { name: wanted.to_owned() });
        }
        thread::sleep(PACE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_from_the_command_line() {
        let served = read("net1,02:00:5e:10:00:01,eth1,9000").expect("a switch");
        assert_eq!((served.bridge.as_str(), served.far.as_str(), served.mtu), ("net1", "eth1", 9000));
        assert_eq!(served.near, MacAddr([2, 0, 0x5e, 0x10, 0, 1]));
        for wrong in ["", "net1", "net1,eth1,eth2,1500", "net1,02:00:5e:10:00:01,eth1,1500,x", "a,b,c,d"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
