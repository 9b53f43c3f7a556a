//! Address translation by the kernel, with an nftables table in a named namespace, which is removed with it.

use std::{
    fmt::Write,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use vtax_guest::LinkName;
use vtax_model::{foreign::ForeignText, station::PublishedPorts, topology::Name};
use vtax_sys::{
    deadline::{OutputError, output_within},
    netns::NetNs,
};

use crate::{
    error::StepError,
    part::{PartStep, StepReceipt},
    site::StepSite,
};

/// Timeout for `nft`, which takes milliseconds unless the machine is very busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Translates the packets of a zone to the address of its host, by a table that is named after the lab and the zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranslateAddresses {
    /// Namespace that translates.
    pub host: Name,
    pub zone: Name,
    /// Program `nft`.
    pub program: PathBuf,
    /// Name of the table in `host`.
    pub table: String,
    /// Network of the zone.
    pub inner: IpNet,
    /// Link on which translated packets leave.
    pub outer: LinkName,
    /// Ports of `host` that lead to the zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<ZonePorts>,
}

/// Published ports of a zone, and its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZonePorts {
    pub ports: PublishedPorts,
    pub zone: IpAddr,
}

impl TranslateAddresses {
    /// Returns rules for testing, which every kernel with address translation accepts.
    fn example(family: &str) -> String {
        format!(
            "add table {family} vtax-try; add chain {family} vtax-try out {{ type nat hook postrouting priority 100; }}; \
             add rule {family} vtax-try out masquerade"
        )
    }

    /// Checks that the kernel can translate addresses, in a temporary namespace.
    pub fn probe(program: &Path) -> Result<(), StepError> {
        let scratch = NetNs::scratch().map_err(StepError::kernel("network namespace"))?;
        apply_rules(program, &scratch, "a new namespace", &TranslateAddresses::example("ip"))
    }

    /// Returns the commands for `nft`, which executes all or none of them.
    fn rules(&self) -> String {
        let TranslateAddresses { table, inner, outer, published, .. } = self;
        let family = if inner.addr().is_ipv4() { "ip" } else { "ip6" };
        let mut rules = format!(
            "add table {family} {table}; \
             add chain {family} {table} out {{ type nat hook postrouting priority 100; }}; \
             add rule {family} {table} out {family} saddr {inner} oifname \"{outer}\" masquerade"
        );
        let Some(ZonePorts { ports, zone }) = published else { return rules };
        let chain = format!("add chain {family} {table} in {{ type nat hook prerouting priority -100; }}");
        let _ = write!(rules, "; {chain}");
        for nth in 0..ports.count {
            let Some((reach, listen)) = ports.nth(nth) else { break };
            let (at, port, to) = (ports.at.ip(), reach.port.unwrap_or_default(), SocketAddr::new(*zone, listen));
            for protocol in ["tcp", "udp"] {
                let _ = write!(
                    rules,
                    "; add rule {family} {table} in {family} daddr {at} {protocol} dport {port} dnat to {to}"
                );
            }
        }
        rules
    }
}

impl PartStep for TranslateAddresses {
    fn describe(&self) -> String {
        let TranslateAddresses { host, zone, inner, outer, published, .. } = self;
        let to = published.as_ref().map(|ZonePorts { ports, zone }| format!("; {ports} of {zone}")).unwrap_or_default();
        format!("addresses of {zone} translated in {host}: {inner} to that of {outer}{to}")
    }

    fn in_full(&self) -> String {
        format!("{}: {} '{}'", self.describe(), self.program.display(), self.rules())
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let host = site.namespace(&self.host)?;
        apply_rules(&self.program, &host, self.host.as_str(), &self.rules()).map(|()| StepReceipt::default())
    }
}

fn apply_rules(program: &Path, namespace: &NetNs, name: &str, rules: &str) -> Result<(), StepError> {
    let mut command = Command::new(program);
    command.arg(rules).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let refused = |says: ForeignText| StepError::Rules { namespace: name.to_owned(), says };
    namespace.place(&mut command).map_err(StepError::kernel(name))?;
    match output_within(&mut command, PATIENCE) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let says = String::from_utf8_lossy(&output.stderr);
            Err(refused(says.lines().next().unwrap_or_default().to_owned().into()))
        }
        Err(OutputError::Start(error)) => Err(StepError::file("start", program)(error)),
        Err(error) => Err(refused(error.to_string().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(inner: &str, published: Option<ZonePorts>) -> TranslateAddresses {
        TranslateAddresses {
            host: "sut".parse().expect("a name"),
            zone: "web".parse().expect("a name"),
            program: "/usr/sbin/nft".into(),
            table: "vtax-rack-web".to_owned(),
            inner: inner.parse().expect("a network"),
            outer: LinkName::new("wire0"),
            published,
        }
    }

    fn ports(at: &str, zone: &str) -> Option<ZonePorts> {
        let ports = PublishedPorts { at: at.parse().expect("a socket's address"), listen: 8080, count: 2 };
        Some(ZonePorts { ports, zone: zone.parse().expect("an address") })
    }

    #[test]
    fn outgoing_packets_get_the_address_of_the_link_by_which_they_leave() {
        assert_eq!(
            step("198.18.0.8/31", None).rules(),
            "add table ip vtax-rack-web; add chain ip vtax-rack-web out { type nat hook postrouting priority 100; }; \
             add rule ip vtax-rack-web out ip saddr 198.18.0.8/31 oifname \"wire0\" masquerade"
        );
    }

    #[test]
    fn each_published_port_leads_to_one_of_the_zone_over_both_transports() {
        for (inner, at, zone, rule) in [
            (
                "198.18.0.8/31",
                "198.18.0.1:20000",
                "198.18.0.9",
                "ip daddr 198.18.0.1 udp dport 20001 dnat to 198.18.0.9:8081",
            ),
            (
                "2001:2::8/127",
                "[2001:2::1]:20000",
                "2001:2::9",
                "ip6 daddr 2001:2::1 tcp dport 20001 dnat to [2001:2::9]:8081",
            ),
        ] {
            let step = step(inner, ports(at, zone));
            assert!(step.rules().contains(rule), "{}", step.rules());
            assert_eq!(step.rules().matches(" dnat to ").count(), 4, "{}", step.rules());
        }
        let words = step("198.18.0.8/31", ports("198.18.0.1:20000", "198.18.0.9")).describe();
        assert_eq!(
            words,
            "addresses of web translated in sut: 198.18.0.8/31 to that of wire0; 198.18.0.1:20000-20001 to ports \
             8080-8081 of 198.18.0.9"
        );
    }
}
