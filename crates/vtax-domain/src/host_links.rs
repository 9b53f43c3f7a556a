//! Links of the host's network as domains use them: those that may become ports of switches, and vtax's own by their
//! marks.

use std::net::IpAddr;

use ipnet::IpNet;
use vtax_model::{topology::Name, units::Mtu};
use vtax_step::NetStack;
use vtax_sys::netlink::Link;

use crate::{error::BindError, switch};

/// Checks that a link of the host may become a port of a switch: its addresses would stop working. Returns true if it is
/// up.
pub(crate) fn check_uplink(stack: &mut NetStack, link: &str, mtu: Mtu) -> Result<bool, BindError> {
    let links = stack.links()?;
    let addresses = stack.rtnl().addresses().map_err(BindError::kernel(link))?;
    let no_link = || BindError::NoLink { link: link.to_owned() };
    let found = links.iter().find(|found| found.name.as_str() == link).ok_or_else(no_link)?;
    let own = addresses.iter().find(|it| it.link == found.index && !is_link_local(it.net.addr()));
    // The two ends of a veth pair each have the other as the lower link.
    let is_above =
        |it: &&Link| it.parent == Some(found.index) && !it.parent_elsewhere && found.parent != Some(it.index);
    let above = links.iter().filter(|it| it.index != found.index).find(is_above);
    let why = match (own, above, found.master) {
        _ if link == "lo" => Some("it is the loopback interface".to_owned()),
        (Some(address), ..) => Some(format!("it has the address {}, which would stop working", address.net)),
        (_, Some(above), _) => Some(format!("{} is built on it", above.name)),
        (_, _, Some(master)) => {
            let name = links.iter().find(|it| it.index == master).map_or(String::new(), |it| it.name.to_string());
            Some(format!("it is a port of {name}"))
        }
        _ => None,
    };
    if let Some(why) = why {
        return Err(BindError::LinkInUse { link: link.to_owned(), why });
    }
    check_mtu(stack, link, mtu)?;
    Ok(found.up)
}

/// Checks that a link of the host carries packets of this size.
pub(crate) fn check_mtu(stack: &mut NetStack, link: &str, mtu: Mtu) -> Result<(), BindError> {
    let has = stack.link(link)?.ok_or_else(|| BindError::NoLink { link: link.to_owned() })?.mtu;
    match has < mtu.get() {
        true => Err(BindError::LinkMtu { link: link.to_owned(), has, wanted: mtu.get() }),
        false => Ok(()),
    }
}

/// Returns the networks of the host's addresses, and those that it has routes to.
pub(crate) fn nets(stack: &mut NetStack) -> Result<Vec<IpNet>, BindError> {
    let addresses = stack.rtnl().addresses().map_err(BindError::kernel("the host's addresses"))?;
    let routes = stack.rtnl().routes().map_err(BindError::kernel("the host's routes"))?;
    let routed = routes.into_iter().map(|route| route.dest).filter(|net| net.prefix_len() > 0);
    Ok(addresses.into_iter().map(|address| address.net).chain(routed).collect())
}

/// Removes all links that have the mark of a domain or switch, and the table of the switch.
pub(crate) fn remove_marked(stack: &mut NetStack, object: &Name) -> Result<(), BindError> {
    stack.remove_guard(&switch::link_name(object))?;
    Ok(stack.remove_marked(&switch::mark(object))?)
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
