//! From the text of a lab file to the topology: every error with its line.

use std::{collections::BTreeSet, ops::Range};

use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::{Cable, Guest, Host, Name, Shape, Topology, Wire, Zone};
use crate::{
    address_family::AddressFamily,
    guest::{Attach, GuestTable, Mac, span, value},
    located::{FileError, Source},
    method::{DomainKind, IoMethod, MethodVariant},
    units::{BitRate, ByteSize, Mtu},
    vf::{VfOptions, Vlan},
};

pub(super) fn read(source: Source<'_>) -> Result<Topology, FileError> {
    Reader { source, file: source.parse()? }.read()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabFile {
    lab: LabTable,
    host: Vec<HostTable>,
    wire: Vec<WireTable>,
    #[serde(default)]
    zone: Vec<ZoneTable>,
    #[serde(default)]
    guest: Vec<GuestTable>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabTable {
    name: Name,
    family: Option<Spanned<AddressFamily>>,
    addresses: Option<IpNet>,
    #[serde(default = "ethernet")]
    mtu: Mtu,
}

fn ethernet() -> Mtu {
    Mtu::ETHERNET
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: Spanned<Name>,
    #[serde(default)]
    switch: bool,
    snooping: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTable {
    name: Spanned<Name>,
    ends: Spanned<[Name; 2]>,
    rate: Option<BitRate>,
    queue: Option<Spanned<ByteSize>>,
    nics: Option<Spanned<Cable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneTable {
    name: Spanned<Name>,
    host: Spanned<Name>,
    method: Spanned<IoMethod>,
    wire: Option<Spanned<Name>>,
    count: Option<Spanned<i64>>,
    mac: Option<Spanned<Mac>>,
    vlan: Option<Spanned<Vlan>>,
    trust: Option<Spanned<bool>>,
    spoof_check: Option<Spanned<bool>>,
    rate: Option<Spanned<BitRate>>,
}

struct Reader<'a> {
    source: Source<'a>,
    file: LabFile,
}

/// Keys common to `[[zone]]` and `[[guest]]`.
struct Member<'a> {
    /// `zone` or `guest`.
    kind: &'static str,
    name: &'a Spanned<Name>,
    host: &'a Spanned<Name>,
    wire: Option<&'a Spanned<Name>>,
    count: Option<&'a Spanned<i64>>,
}

impl Reader<'_> {
    fn read(self) -> Result<Topology, FileError> {
        let hosts: Vec<Host> = self.file.host.iter().map(HostTable::host).collect();
        let wires = self.wires(&hosts)?;
        let zones = self.zones(&hosts, &wires)?;
        let guests = self.guests(&hosts, &wires, zones.len())?;
        self.check_names(&zones, &guests)?;
        let LabTable { name, family, addresses, mtu } = self.file.lab.clone();
        let family = AddressFamily::in_file(self.source, family.as_ref(), addresses)?;
        let topology = Topology { name, family, addresses, mtu, hosts, wires, zones, guests };
        self.check_masters(&topology)?;
        Ok(topology)
    }

    fn wires(&self, hosts: &[Host]) -> Result<Vec<Wire>, FileError> {
        self.file.wire.iter().map(|table| self.wire(table, hosts)).collect()
    }

    fn wire(&self, table: &WireTable, hosts: &[Host]) -> Result<Wire, FileError> {
        let ends = table.ends.get_ref();
        for end in ends {
            if !hosts.iter().any(|host| host.name == *end) {
                let message = format!("wire `{}` ends at `{end}`, which is not a [[host]]", table.name.get_ref());
                return Err(self.source.coded("no-such-host", &table.ends.span(), message));
            }
        }
        if ends[0] == ends[1] {
            let message =
                format!("wire `{}` has both ends at `{}`; a wire connects two hosts", table.name.get_ref(), ends[0]);
            return Err(self.source.coded("wire-to-itself", &table.ends.span(), message));
        }
        let (shape, nics) = (self.shape(table)?, self.nics(table)?);
        Ok(Wire { name: table.name.get_ref().clone(), ends: ends.clone(), shape, nics })
    }

    fn nics(&self, table: &WireTable) -> Result<Option<Cable>, FileError> {
        let Some(nics) = &table.nics else { return Ok(None) };
        let name = table.name.get_ref();
        let (code, message) = match (nics.get_ref(), table.rate) {
            (Cable([one, other]), _) if one == other => (
                "bad-cable",
                format!("wire `{name}` has `{one}` at both ends; specify the two NICs that the cable connects"),
            ),
            (_, Some(_)) => {
                ("options-clash", format!("wire `{name}` is a cable with the rate of its NICs; remove `rate`"))
            }
            (nics, None) => return Ok(Some(nics.clone())),
        };
        Err(self.source.coded(code, &nics.span(), message))
    }

    fn check_masters(&self, topology: &Topology) -> Result<(), FileError> {
        topology.guests_by_masters().map(drop).map_err(|error| {
            let tables: Vec<&Spanned<Name>> = self.file.guest.iter().map(|table| &table.name).collect();
            self.source.refuse(&written(error.guest(), &tables), error)
        })
    }

    fn shape(&self, table: &WireTable) -> Result<Option<Shape>, FileError> {
        let mtu = self.file.lab.mtu;
        let packet = mtu.get() + Shape::HEADER;
        let Some(written) = &table.queue else { return Ok(table.rate.map(|rate| Shape { rate, queue: None })) };
        let (name, queue) = (table.name.get_ref(), *written.get_ref());
        let message = match table.rate {
            None => format!("wire `{name}` has a queue but no rate; add a rate, or remove the queue"),
            Some(_) if queue.0 < packet.into() => {
                format!(
                    "a queue of {queue} cannot hold a packet of mtu {mtu}, which has {packet} bytes; use a larger one"
                )
            }
            Some(rate) => return Ok(Some(Shape { rate, queue: Some(queue) })),
        };
        Err(self.source.coded("bad-queue", &written.span(), message))
    }

    fn zones(&self, hosts: &[Host], wires: &[Wire]) -> Result<Vec<Zone>, FileError> {
        let mut zones = Vec::new();
        for table in &self.file.zone {
            let member = table.member();
            let host = self.host(&member, hosts)?;
            let wire = self.wire_of(&member, &host, wires)?;
            let method = self.zone_method(table)?;
            let vf = self.vf(table)?;
            let names = self.names(&member, zones.len())?;
            let mac = self.mac(table.mac.as_ref(), names.len())?;
            let zone = |name| Zone { name, host: host.clone(), method, wire: wire.clone(), mac, vf };
            zones.extend(names.into_iter().map(zone));
        }
        Ok(zones)
    }

    fn guests(&self, hosts: &[Host], wires: &[Wire], zones: usize) -> Result<Vec<Guest>, FileError> {
        let mut guests = Vec::new();
        for table in &self.file.guest {
            let member = Member::of_guest(table);
            let host = self.host(&member, hosts)?;
            let wire = self.wire_of(&member, &host, wires)?;
            let names = self.names(&member, zones + guests.len())?;
            let first = self.guest(table, host, wire, names.len())?;
            guests.extend(names.into_iter().map(|name| Guest { name, ..first.clone() }));
        }
        Ok(guests)
    }

    /// Returns one of the `count` guests of a table, which differ only in their names.
    fn guest(&self, table: &GuestTable, host: Name, wire: Name, count: usize) -> Result<Guest, FileError> {
        let options = table.options();
        let (size, system) = (options.size(), options.system(self.source)?);
        let attach = options.attach(&table.method, self.source)?;
        attach.check(&size).map_err(|error| {
            let span = options.blamed(&error).unwrap_or(table.name.span());
            self.source.refuse(&span, error)
        })?;
        let mac = self.mac(table.mac.as_ref(), count)?;
        if let Some(written) = table.mac.as_ref().filter(|_| matches!(attach, Attach::Assigned | Attach::RootDomain)) {
            let message =
                format!("a guest with the whole NIC ({}) has the NIC's own address; remove `mac`", attach.method());
            return Err(self.source.coded("options-clash", &written.span(), message));
        }
        let masters = table.masters.clone().unwrap_or_default();
        let disks = table.disk.iter().flatten().map(|disk| disk.disk(&size, self.source));
        let disks = disks.collect::<Result<_, _>>()?;
        let name = table.name.get_ref().clone();
        Ok(Guest { name, host, wire, attach, mac, size, system, masters, disks, lent: None })
    }

    fn mac(&self, written: Option<&Spanned<Mac>>, count: usize) -> Result<Option<Mac>, FileError> {
        match written {
            Some(mac) if count > 1 => {
                let message = "several domains cannot share an address; remove `mac`, so that each gets its own";
                Err(self.source.coded("options-clash", &mac.span(), message))
            }
            mac => Ok(mac.map(|mac| *mac.get_ref())),
        }
    }

    /// Returns the settings of a zone's virtual function.
    fn vf(&self, table: &ZoneTable) -> Result<VfOptions, FileError> {
        let method = *table.method.get_ref();
        let able = MethodVariant::of_zone(method).capabilities();
        let not_for_this = |option: &str| method != IoMethod::SrIov || able.refuses(option).is_some();
        if let Some((option, span)) = table.vf_options().into_iter().find(|(option, _)| not_for_this(option)) {
            let why = able.refuses(option).map(|why| format!(": {why}")).unwrap_or_default();
            let message =
                format!("`{option}` applies to virtual functions (sr-iov), and this zone is {method}{why}; remove it");
            return Err(self.source.coded("option-not-for-this", &span, message));
        }
        let vf = VfOptions {
            vlan: value(&table.vlan),
            trust: value(&table.trust),
            spoof_check: value(&table.spoof_check),
            rate: value(&table.rate),
        };
        let span = span(&table.rate).unwrap_or(table.name.span());
        vf.rate_mbit().map(|_| vf).map_err(|error| self.source.refuse(&span, error))
    }

    fn host(&self, member: &Member<'_>, hosts: &[Host]) -> Result<Name, FileError> {
        let Member { kind, name, host: wanted, .. } = member;
        let (span, wanted) = (wanted.span(), wanted.get_ref());
        match hosts.iter().find(|host| host.name == *wanted) {
            Some(host) if !host.switch => Ok(host.name.clone()),
            Some(_) => {
                let message = format!("`{wanted}` is a switch and cannot own a {kind}; use another host");
                Err(self.source.coded("host-is-switch", &span, message))
            }
            None => {
                let message = format!("{kind} `{}` is on `{wanted}`, which is not a [[host]]", name.get_ref());
                Err(self.source.coded("no-such-host", &span, message))
            }
        }
    }

    fn wire_of(&self, member: &Member<'_>, host: &Name, wires: &[Wire]) -> Result<Name, FileError> {
        let mine: Vec<&Name> = wires.iter().filter(|wire| wire.ends.contains(host)).map(|wire| &wire.name).collect();
        let span = member.wire.unwrap_or(member.host).span();
        match (member.wire, mine.as_slice()) {
            (Some(wire), mine) if mine.contains(&wire.get_ref()) => Ok(wire.get_ref().clone()),
            (None, [only]) => Ok((*only).clone()),
            (Some(wire), _) => {
                let message = format!("host `{host}` has no wire `{}`", wire.get_ref());
                Err(self.source.coded("host-without-wire", &span, message))
            }
            (None, []) => {
                let message = format!("host `{host}` has no wire; add a [[wire]] that ends there");
                Err(self.source.coded("host-without-wire", &span, message))
            }
            (None, _) => {
                let message = format!("host `{host}` has several wires; select one with `wire = `");
                Err(self.source.coded("several-wires", &span, message))
            }
        }
    }

    fn zone_method(&self, table: &ZoneTable) -> Result<IoMethod, FileError> {
        let message = match *table.method.get_ref() {
            IoMethod::Native => "`native` is the host itself and does not need a [[zone]]; remove this zone".to_owned(),
            method if method.domains().contains(&DomainKind::Zone) => return Ok(method),
            method => format!("`{method}` attaches guests, not zones; make it a [[guest]]"),
        };
        Err(self.source.coded("method-not-for-domain", &table.method.span(), message))
    }

    fn names(&self, member: &Member<'_>, so_far: usize) -> Result<Vec<Name>, FileError> {
        let base = member.name.get_ref();
        let number = member.count.map_or(1, |count| *count.get_ref());
        let most = Topology::MOST_ZONES.saturating_sub(so_far);
        let Some(number) = usize::try_from(number).ok().filter(|n| (1..=most).contains(n)) else {
            let message = format!("count {number}: a lab has 1 to {} zones and guests in total", Topology::MOST_ZONES);
            let span = member.count.map_or(member.name.span(), Spanned::span);
            return Err(self.source.coded("out-of-range", &span, message));
        };
        if member.count.is_none() {
            return Ok(vec![base.clone()]);
        }
        let numbered = (1..=number).map(|i| Name::try_from(format!("{base}-{i}")));
        numbered.collect::<Result<_, _>>().map_err(|error| self.source.refuse(&member.name.span(), error))
    }

    fn check_names(&self, zones: &[Zone], guests: &[Guest]) -> Result<(), FileError> {
        let mut taken = BTreeSet::new();
        let LabFile { host, wire, zone, guest, .. } = &self.file;
        let single = host.iter().map(|table| &table.name).chain(wire.iter().map(|table| &table.name));
        let single = single.map(|name| (name.get_ref(), name.span()));
        let of_zones: Vec<&Spanned<Name>> = zone.iter().map(|table| &table.name).collect();
        let of_guests: Vec<&Spanned<Name>> = guest.iter().map(|table| &table.name).collect();
        let zones = zones.iter().map(|zone| (&zone.name, written(&zone.name, &of_zones)));
        let guests = guests.iter().map(|guest| (&guest.name, written(&guest.name, &of_guests)));
        match single.chain(zones).chain(guests).find(|(name, _)| !taken.insert(*name)) {
            Some((name, span)) => {
                let message = format!("duplicate name `{name}`; each host, wire, zone and guest needs its own");
                Err(self.source.coded("same-name", &span, message))
            }
            None => Ok(()),
        }
    }
}

/// Returns the position of a name, with or without the number added by a count.
fn written(name: &Name, tables: &[&Spanned<Name>]) -> Range<usize> {
    let table = tables.iter().rfind(|table| name.as_str().starts_with(table.get_ref().as_str()));
    table.map_or(0..0, |table| table.span())
}

impl ZoneTable {
    fn member(&self) -> Member<'_> {
        let ZoneTable { name, host, wire, count, .. } = self;
        Member { kind: "zone", name, host, wire: wire.as_ref(), count: count.as_ref() }
    }

    /// Returns the options of virtual functions that are set, each with its position.
    fn vf_options(&self) -> Vec<(&'static str, Range<usize>)> {
        let options = [
            ("mac", span(&self.mac)),
            ("vlan", span(&self.vlan)),
            ("trust", span(&self.trust)),
            ("spoof_check", span(&self.spoof_check)),
            ("rate", span(&self.rate)),
        ];
        options.into_iter().filter_map(|(option, span)| Some((option, span?))).collect()
    }
}

impl<'a> Member<'a> {
    fn of_guest(table: &'a GuestTable) -> Member<'a> {
        let GuestTable { name, host, wire, count, .. } = table;
        Member { kind: "guest", name, host, wire: wire.as_ref(), count: count.as_ref() }
    }
}

impl HostTable {
    fn host(&self) -> Host {
        Host { name: self.name.get_ref().clone(), switch: self.switch, snooping: self.snooping }
    }
}
