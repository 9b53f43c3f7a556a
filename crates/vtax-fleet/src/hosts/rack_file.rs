//! The rack file: hosts as TOML.

use std::{collections::BTreeSet, net::IpAddr};

use serde::Deserialize;
use toml::Spanned;
use vtax_model::{
    endpoint::{Control, DeviceName},
    located::{FileError, Source},
};

use super::{FleetHost, FleetNic, HostList};
use crate::{name::FleetName, schedule::UplinkLimits};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RackFile {
    #[serde(default)]
    host: Vec<RackHost>,
    #[serde(default)]
    uplink: Vec<Spanned<RackUplink>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RackHost {
    name: FleetName,
    control: Option<Control>,
    address: Option<IpAddr>,
    device: Option<DeviceName>,
    rack: Option<FleetName>,
    uplink: Option<FleetName>,
    rail: Option<FleetName>,
    #[serde(default)]
    groups: BTreeSet<FleetName>,
    nics: Option<Spanned<Vec<RackNic>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RackNic {
    address: Option<IpAddr>,
    device: Option<DeviceName>,
    rail: Option<FleetName>,
    uplink: Option<FleetName>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RackUplink {
    name: FleetName,
    /// Tests that may cross it at the same time.
    tests: u32,
}

/// Most that a rack file has. A parsed table takes some hundred times its shortest text, and 20,000 hosts with 8 NICs each fit in 10 MiB.
const LONGEST: usize = 16 << 20;

pub(super) fn read(source: Source<'_>) -> Result<HostList, FileError> {
    if source.text.len() > LONGEST {
        return Err(source.coded("too-many-hosts", &(0..0), "larger than 16 MiB; a rack file has at most 20000 hosts"));
    }
    let file: RackFile = source.parse()?;
    let hosts = file.host.into_iter().map(|host| host.read(source)).collect::<Result<Vec<_>, FileError>>()?;
    let limits = limits(&file.uplink, &hosts, source)?;
    Ok(HostList { hosts, limits })
}

impl RackHost {
    fn read(self, source: Source<'_>) -> Result<FleetHost, FileError> {
        let RackHost { name, control, address, device, rack, uplink, rail, groups, nics } = self;
        let only = FleetNic { address, device, rail, uplink };
        let nics = match nics {
            None => vec![only],
            Some(nics) if nics.get_ref().is_empty() || only.address.is_some() || only.device.is_some() => {
                let message = format!(
                    "`nics` of the host `{name}` replaces its `address` and `device`: give one NIC or more there, or omit `nics`"
                );
                return Err(source.coded("bad-value", &nics.span(), message));
            }
            Some(nics) => nics.into_inner().into_iter().map(|nic| nic.of_host(&only)).collect(),
        };
        let known = FleetHost::named(name);
        Ok(FleetHost { control: control.unwrap_or(known.control), nics, rack, groups, ..known })
    }
}

impl RackNic {
    /// Takes the host's rail and uplink if the NIC has none.
    fn of_host(self, host: &FleetNic) -> FleetNic {
        let RackNic { address, device, rail, uplink } = self;
        FleetNic { address, device, rail: rail.or(host.rail.clone()), uplink: uplink.or(host.uplink.clone()) }
    }
}

fn limits(uplinks: &[Spanned<RackUplink>], hosts: &[FleetHost], source: Source<'_>) -> Result<UplinkLimits, FileError> {
    let used: BTreeSet<&FleetName> =
        hosts.iter().flat_map(|host| &host.nics).filter_map(|nic| nic.uplink.as_ref()).collect();
    let mut limits = UplinkLimits::default();
    for uplink in uplinks {
        let RackUplink { name, tests } = uplink.get_ref();
        let refused = |code: &str, message: String| Err(source.coded(code, &uplink.span(), message));
        if *tests == 0 {
            return refused("bad-value", format!("`tests` of the uplink `{name}` is 0; allow at least 1"));
        }
        if !used.contains(name) {
            return refused("unknown-part-of-fleet", format!("no host has the uplink `{name}`"));
        }
        if limits.insert(name.clone(), *tests).is_some() {
            return refused("named-twice", format!("the uplink `{name}` is named twice; remove one"));
        }
    }
    Ok(limits)
}
