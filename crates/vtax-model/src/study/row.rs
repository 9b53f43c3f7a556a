//! Rows of a table.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::{Display, EnumString, IntoStaticStr};

use super::{
    disk_row::DiskRow,
    migration_row::{MIGRATE, MigrationWay, MigrationWayError},
    nic_label::NicLabel,
    pods::PodPath,
    step::StepName,
};
use crate::{
    address_family::AddressFamily,
    disk::{DiskAttachError, DiskDevice},
    guest::Flavour,
    method::IoMethod,
    options::Engine,
    spelling::nearest,
    workload::{StreamLoad, StreamLoadError},
};

/// Subject of one row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub enum Row {
    /// A domain attached by this method, on a wire between two hosts.
    Method(IoMethod),
    /// A guest attached by this kind of NIC, on a wire between two hosts: `paravirtual:userspace`.
    Device(Flavour),
    /// Guests that share a NIC, and the component that sorts incoming frames.
    Queue(Queueing),
    /// Two domains, each a host or a paravirtual guest.
    Path(GuestPath),
    /// Two zones on one host, whose traffic leaves the host unless they share its stack.
    Zones {
        /// Stack of the sender.
        from: IpType,
        /// Stack of the receiver.
        to: IpType,
    },
    /// One path, measured with this engine.
    Engine(Engine),
    /// An existing machine, measured on the NIC of this name: `nic:net0`.
    Nic(NicLabel),
    /// One path under a load: `under:tcp-stream,streams=4`; without one: `idle`.
    Load(Option<StreamLoad>),
    /// Two pods that the run creates in a cluster of Kubernetes: `two-nodes-service`.
    Pods(PodPath),
    /// Disks of the host or of a guest.
    Disk(DiskRow),
    /// A guest that migrates in this way: `migrate:tls`.
    Migration(MigrationWay),
    /// One path, with the current settings of its machines.
    AsIs,
    /// A path whose machines have the settings of a tuning step.
    Tuned {
        /// Path between two domains of a lab. None if all rows of the study have the same
        /// endpoints.
        path: Option<GuestPath>,
        /// Step of the study.
        step: StepName,
    },
}

/// Owner of the network stack that a zone uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString, Display)]
#[strum(serialize_all = "lowercase")]
pub enum IpType {
    /// Its host's.
    Shared,
    /// Its own, on a dedicated wire.
    Exclusive,
}

impl IpType {
    const PAIRS: [&str; 4] =
        ["shared-to-shared", "shared-to-exclusive", "exclusive-to-shared", "exclusive-to-exclusive"];
}

/// Receive queues for the frames of a host's guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString, Display, IntoStaticStr)]
pub enum Queueing {
    /// One for all: the guests are ports of a vsw, and the wire is its uplink.
    #[strum(to_string = "shared-queue")]
    Shared,
    /// One per guest: the wire's own driver sorts frames by address, with a macvtap for each.
    #[strum(to_string = "queue-per-guest")]
    PerGuest,
    /// Those of a virtual function per guest: the NIC itself sorts frames.
    #[strum(to_string = "vf-per-guest")]
    Function,
}

impl Queueing {
    const ALL: [Queueing; 3] = [Queueing::Shared, Queueing::PerGuest, Queueing::Function];
}

/// Sender and receiver of a stream, on two hosts unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum GuestPath {
    /// Both on their own stacks.
    HostToHost,
    /// To a guest of the other host.
    HostToGuest,
    /// Both on one vsw of one host.
    GuestToGuest,
    /// Each on a separate host.
    GuestToGuestAcrossHosts,
}

impl GuestPath {
    const ALL: [GuestPath; 4] =
        [GuestPath::HostToHost, GuestPath::HostToGuest, GuestPath::GuestToGuest, GuestPath::GuestToGuestAcrossHosts];
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Method(method) => method.fmt(f),
            Row::Device(flavour) => f.pad(&format!("{}:{flavour}", flavour.method())),
            Row::Queue(queueing) => queueing.fmt(f),
            Row::Path(path) => path.fmt(f),
            Row::Zones { from, to } => f.pad(&format!("{from}-to-{to}")),
            Row::Engine(engine) => engine.fmt(f),
            Row::Nic(nic) => f.pad(&format!("{NIC}{nic}")),
            Row::Load(None) => f.pad(IDLE),
            Row::Load(Some(load)) => f.pad(&format!("{UNDER}{load}")),
            Row::Pods(path) => path.fmt(f),
            Row::Disk(disk) => disk.fmt(f),
            Row::Migration(way) => way.fmt(f),
            Row::AsIs => f.pad(AS_IS),
            Row::Tuned { path: None, step } => f.pad(&format!("+{step}")),
            Row::Tuned { path: Some(path), step } => f.pad(&format!("{path}+{step}")),
        }
    }
}

const AS_IS: &str = "as-is";
const NIC: &str = "nic:";
const IDLE: &str = "idle";
const UNDER: &str = "under:";

impl Row {
    /// Returns the step whose settings are in force while the row is measured.
    pub fn step(self) -> Option<StepName> {
        match self {
            Row::Tuned { step, .. } => Some(step),
            _ => None,
        }
    }

    /// Returns the row with which it is compared: for a tuned path the same path untuned, otherwise the baseline.
    pub fn reference(self, baseline: Row) -> Row {
        match self {
            Row::Tuned { path: Some(path), .. } => Row::Path(path),
            _ => baseline,
        }
    }

    /// Returns the row whose lab it is measured in: a tuned path uses the domains of the same path
    /// untuned.
    pub fn untuned(self) -> Row {
        match self {
            Row::Tuned { path: Some(path), .. } => Row::Path(path),
            Row::Tuned { path: None, .. } => Row::AsIs,
            row => row,
        }
    }

    /// Returns the load under which it is measured.
    pub fn load(self) -> Option<StreamLoad> {
        match self {
            Row::Load(load) => load,
            _ => None,
        }
    }

    /// Returns the I/O method of the row.
    pub fn method(self) -> Option<IoMethod> {
        match self {
            Row::Method(method) => Some(method),
            Row::Device(flavour) => Some(flavour.method()),
            Row::Queue(Queueing::Function) => Some(IoMethod::SrIov),
            Row::Queue(_) => Some(IoMethod::Paravirtual),
            Row::Path(_)
            | Row::Zones { .. }
            | Row::Engine(_)
            | Row::Nic(_)
            | Row::Load(_)
            | Row::Pods(_)
            | Row::Disk(_)
            | Row::Migration(_)
            | Row::AsIs
            | Row::Tuned { .. } => None,
        }
    }

    /// Returns the kind of NIC of the row, if specified.
    pub fn flavour(self) -> Option<Flavour> {
        match self {
            Row::Device(flavour) => Some(flavour),
            _ => None,
        }
    }

    /// Returns true if it specifies one endpoint and leaves the other to [`StudyNetwork::both`](super::StudyNetwork::both).
    pub fn may_be_both(self) -> bool {
        matches!(self, Row::Method(_) | Row::Device(_))
    }

    /// Returns true if several of its pairs can be behind one switch. A routed zone, a tunnel and a zone that takes the
    /// wire's end away need a wire whose other end is their only peer.
    pub fn may_be_paired(self) -> bool {
        let alone = [IoMethod::Veth, IoMethod::Vxlan, IoMethod::Exclusive, IoMethod::Assigned, IoMethod::RootDomain];
        self.method().is_some_and(|method| !alone.contains(&method))
    }

    /// Returns the bytes of each packet on the wire that the domain can't use.
    pub fn overhead(self, family: AddressFamily) -> u32 {
        self.method().map_or(0, |method| method.overhead(family))
    }

    /// Returns the subject of the comparison, which determines the required lab.
    pub(super) fn kind(self) -> RowKind {
        match self {
            Row::Method(_) | Row::Device(_) | Row::Queue(_) => RowKind::Methods,
            Row::Path(_) | Row::Tuned { path: Some(_), .. } => RowKind::Paths,
            Row::Zones { .. } => RowKind::Zones,
            Row::Engine(_) => RowKind::Engines,
            Row::Nic(_) => RowKind::Nics,
            Row::Load(_) => RowKind::Loads,
            Row::Pods(_) => RowKind::Pods,
            Row::Disk(_) => RowKind::Disks,
            Row::Migration(_) => RowKind::Migrations,
            Row::AsIs | Row::Tuned { path: None, .. } => RowKind::Settings,
        }
    }
}

/// Subject of a study's comparison. All rows of a study share it, because each subject requires a different lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub(super) enum RowKind {
    #[strum(to_string = "methods require a wire between two hosts")]
    Methods,
    #[strum(to_string = "paths specify both endpoints")]
    Paths,
    #[strum(to_string = "pairs of zones are on one host")]
    Zones,
    #[strum(to_string = "engines share one path")]
    Engines,
    #[strum(to_string = "NICs belong to existing machines")]
    Nics,
    #[strum(to_string = "loads share one path")]
    Loads,
    #[strum(to_string = "pods are created for them")]
    Pods,
    #[strum(to_string = "disks are read and written")]
    Disks,
    #[strum(to_string = "guests migrate")]
    Migrations,
    #[strum(to_string = "tuning steps share one path")]
    Settings,
}

/// Rejected name of a row: an unknown method or invalid options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum UnknownRow {
    #[error("unknown row `{_0}`; {}", known_rows(_0))]
    #[diagnostic(code("unknown-name"))]
    Name(String),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Disk(DiskAttachError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Load(StreamLoadError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Migration(MigrationWayError),
}

/// Returns the likely name, or the whole long list if no name is near.
fn known_rows(text: &str) -> String {
    let devices = Flavour::ALL.map(|flavour| Row::Device(flavour).to_string());
    let (methods, queues) = (IoMethod::ALL.map(<&str>::from), Queueing::ALL.map(<&str>::from));
    let (paths, engines) = (GuestPath::ALL.map(<&str>::from), Engine::ALL.map(<&str>::from));
    let (disks, pods) = (DiskDevice::ALL.map(<&str>::from), PodPath::ALL.map(<&str>::from));
    let known = { methods }.into_iter().chain(queues).chain(paths).chain(engines).chain(IpType::PAIRS);
    let known = known.chain(disks).chain([DiskRow::NATIVE]).chain(pods);
    if let Some(name) = nearest(text, known.chain(devices.iter().map(String::as_str))) {
        return format!("did you mean `{name}`? (`vtax methods` lists the I/O methods)");
    }
    format!(
        "use an I/O method ({}), a kind of NIC of a guest ({}), a queueing of guests ({}), a path ({}), a pair of \
         zones ({}), an engine ({}), a path between pods ({}), a way to a disk ({}, {}), or a way to migrate ({MIGRATE}plain, {MIGRATE}tls)",
        methods.join(", "),
        devices.join(", "),
        queues.join(", "),
        paths.join(", "),
        IpType::PAIRS.join(", "),
        engines.join(", "),
        pods.join(", "),
        DiskRow::NATIVE,
        disks.join(", ")
    )
}

impl FromStr for Row {
    type Err = UnknownRow;

    fn from_str(text: &str) -> Result<Self, UnknownRow> {
        if let Ok(method) = text.parse() {
            return Ok(Row::Method(method));
        }
        if let Ok(engine) = text.parse() {
            return Ok(Row::Engine(engine));
        }
        if let Some(flavour) = device(text) {
            return Ok(Row::Device(flavour));
        }
        if let Ok(queueing) = text.parse() {
            return Ok(Row::Queue(queueing));
        }
        if let Ok(path) = text.parse() {
            return Ok(Row::Path(path));
        }
        if let Ok(path) = text.parse() {
            return Ok(Row::Pods(path));
        }
        if let Some(nic) = text.strip_prefix(NIC).and_then(|nic| nic.parse().ok()) {
            return Ok(Row::Nic(nic));
        }
        if text == IDLE {
            return Ok(Row::Load(None));
        }
        if let Some(way) = text.strip_prefix(MIGRATE) {
            return way.parse().map(Row::Migration).map_err(UnknownRow::Migration);
        }
        if let Some(load) = text.strip_prefix(UNDER) {
            return load.parse().map(|load| Row::Load(Some(load))).map_err(UnknownRow::Load);
        }
        match text.parse() {
            Ok(disk) => return Ok(Row::Disk(disk)),
            Err(Some(error)) => return Err(UnknownRow::Disk(error)),
            Err(None) => {}
        }
        if text == AS_IS {
            return Ok(Row::AsIs);
        }
        if let Some(tuned) = tuned(text) {
            return Ok(tuned);
        }
        let pair = text.split_once("-to-").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        pair.map(|(from, to)| Row::Zones { from, to }).ok_or_else(|| UnknownRow::Name(text.to_owned()))
    }
}

/// Parses `+gro`, or `host-to-guest+gro`.
fn tuned(text: &str) -> Option<Row> {
    let (path, step) = text.split_once('+')?;
    let path = if path.is_empty() { None } else { Some(path.parse().ok()?) };
    Some(Row::Tuned { path, step: step.parse().ok()? })
}

fn device(text: &str) -> Option<Flavour> {
    let (method, flavour) = text.split_once(':')?;
    let flavour: Flavour = flavour.parse().ok()?;
    (<&str>::from(flavour.method()) == method).then_some(flavour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuned_row_is_read_back_as_written() {
        for text in ["as-is", "+gro", "+rps,xps", "host-to-guest+tcp-buffers"] {
            assert_eq!(text.parse::<Row>().map(|row| row.to_string()), Ok(text.to_owned()));
        }
        for text in ["+", "+GRO", "bridge+gro", "host-to-guest+"] {
            assert!(text.parse::<Row>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_load_is_read_back_as_written() {
        for text in ["idle", "under:tcp-stream", "under:udp-stream,streams=4,direction=both"] {
            assert_eq!(text.parse::<Row>().map(|row| row.to_string()), Ok(text.to_owned()));
        }
        for text in ["under", "under:", "under:tcp-rr", "under:tcp-stream,streams=0", "idle:"] {
            assert!(text.parse::<Row>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_nic_is_read_back_as_written() {
        assert_eq!("nic:net0".parse::<Row>().map(|row| row.to_string()), Ok("nic:net0".to_owned()));
        for text in ["nic:", "nic:net 0", "nic", "nic:abcdefghijklmnopqrstuvwxyz-0123456"] {
            assert!(text.parse::<Row>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_tuned_path_is_measured_where_the_path_is() {
        let row = |text: &str| text.parse::<Row>().expect("a row");
        assert_eq!(row("host-to-guest+gro").untuned(), row("host-to-guest"));
        assert_eq!(row("+gro").untuned(), Row::AsIs);
        assert_eq!(row("bridge").untuned(), row("bridge"));
    }
}
