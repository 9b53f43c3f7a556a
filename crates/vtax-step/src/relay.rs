//! User-space programs that carry the traffic of a zone: a rootless network, or the proxy of a published port.
//!
//! Such a program runs in the namespace of the zone's host. It has the mark of the lab's processes, so it ends with the
//! host's namespace even if its step isn't undone.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use vtax_guest::LinkName;
use vtax_journal::Undone;
use vtax_model::{foreign::ForeignText, topology::Name, units::Mtu};
use vtax_sys::{
    netns::Outlive,
    process::{Pid, ProcessId, Signal},
};

use crate::{
    error::StepError,
    guest::undone,
    part::{PartStep, StepReceipt},
    relay_process::RelayProcess,
    site::{StepSite, mark_process},
    stack::NetStack,
};

/// Timeout for readiness. These programs are ready in milliseconds, unless the machine is very busy.
const READY: Duration = Duration::from_secs(10);
/// Time within which a killed process ends, unless the kernel blocks it.
const ENDED: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of bytes of its messages that are read.
const SAID: u64 = 4096;

/// Starts a program that carries the traffic of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRelay {
    /// Namespace in which the program runs.
    pub host: Name,
    pub zone: Name,
    pub program: PathBuf,
    pub relay: Relay,
}

/// Function of such a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Relay {
    /// Creates a tap in the zone, and re-creates each connection of the zone from the host.
    Pasta { link: LinkName, mtu: Mtu, uplink: LinkName, address: IpNet, gateway: IpAddr },
    /// The same with a separate network stack.
    Slirp4netns { link: LinkName, mtu: Mtu, network: IpNet },
    /// Accepts connections to a port of the host, and opens another to the zone for each.
    Proxy { udp: bool, at: SocketAddr, to: SocketAddr },
}

impl Relay {
    /// Largest MTU of slirp4netns(1), which splits packets that are larger than its own.
    const SLIRP_MTU: u32 = 65_520;

    /// Returns the arguments; `zone` is the path where the zone's namespace is pinned.
    fn arguments(&self, zone: &Path) -> Vec<String> {
        let zone = zone.display().to_string();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            Relay::Pasta { link, uplink, address, gateway, .. } => {
                let family = if gateway.is_ipv4() { "-4" } else { "-6" };
                let (own, prefix) = (address.addr().to_string(), address.prefix_len().to_string());
                let prefix = if gateway.is_ipv4() { ["-n", &prefix].to_vec() } else { Vec::new() };
                let fixed = [family, "-f", "-q", "-e", "-I", link.as_str(), "-i", uplink.as_str(), "-a", &own];
                // Otherwise it would drop root privileges, and could not enter the zone. No ports are forwarded.
                let rest = ["--runas", "0", "--netns-only", "-t", "none", "-u", "none", "-T", "none", "-U", "none"];
                let gateway = gateway.to_string();
                words(&[&fixed[..], &prefix, &["-g", &gateway], &rest, &["--netns", &zone]].concat())
            }
            Relay::Slirp4netns { link, network, .. } => {
                let (mtu, cidr) = (format!("--mtu={}", Relay::SLIRP_MTU), format!("--cidr={network}"));
                words(&["--netns-type=path", &mtu, &cidr, "--disable-dns", &zone, link.as_str()])
            }
            Relay::Proxy { udp, at, to } => {
                let protocol = if *udp { "udp" } else { "tcp" };
                let [host, container] = [at, to].map(|socket| (socket.ip().to_string(), socket.port().to_string()));
                let ([host_ip, host_port], [ip, port]) = ([&host.0, &host.1], [&container.0, &container.1]);
                let fixed = ["-proto", protocol, "-host-ip", host_ip, "-host-port", host_port];
                words(&[&fixed[..], &["-container-ip", ip, "-container-port", port]].concat())
            }
        }
    }

    /// Returns the tap that it creates in the zone, with its MTU.
    fn tap(&self) -> Option<(&LinkName, Mtu)> {
        match self {
            Relay::Pasta { link, mtu, .. } | Relay::Slirp4netns { link, mtu, .. } => Some((link, *mtu)),
            Relay::Proxy { .. } => None,
        }
    }
}

impl StartRelay {
    /// Takes over a program that a journal recorded.
    pub fn recall(&self, receipt: &StepReceipt, site: &mut StepSite) {
        let Some(process) = receipt.process() else { return };
        site.remember_relay(&self.zone, RelayProcess { program: self.name(), process });
    }

    fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn command(&self, zone: &Path) -> Command {
        let arguments = self.relay.arguments(zone);
        match self.relay {
            // docker-proxy reports to its parent on descriptor 3 and then closes it, whatever it is.
            Relay::Proxy { .. } => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", r#"exec "$0" "$@" 3>/dev/null"#]).arg(&self.program).args(arguments);
                shell
            }
            Relay::Pasta { .. } | Relay::Slirp4netns { .. } => {
                let mut program = Command::new(&self.program);
                program.args(arguments);
                program
            }
        }
    }

    fn failed(&self, why: impl Into<String>, says: ForeignText) -> StepError {
        StepError::Relay { program: self.name(), zone: self.zone.clone(), why: why.into(), says }
    }

    /// Waits until the program is ready. `said` contains its messages.
    fn settle(&self, child: &mut Child, said: &mut File, site: &mut StepSite) -> Result<(), StepError> {
        let deadline = Instant::now() + READY;
        while !self.is_ready(child.id(), site)? {
            let ended = child.try_wait().map_err(StepError::file("wait for", &self.program))?;
            if let Some(status) = ended {
                return Err(self.failed(format!("exited immediately ({status})"), message(said)));
            }
            if Instant::now() > deadline {
                return Err(self.failed(format!("was not ready after {} s", READY.as_secs()), message(said)));
            }
            site.check_goes_on()?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn is_ready(&self, pid: u32, site: &mut StepSite) -> Result<bool, StepError> {
        match &self.relay {
            Relay::Proxy { udp, at, .. } => Ok(is_bound(pid, *udp, *at)),
            Relay::Pasta { link, .. } | Relay::Slirp4netns { link, .. } => {
                Ok(site.stack(Some(&self.zone))?.link(link.as_str())?.is_some())
            }
        }
    }

    /// Waits until the uplink has a link-local address, without which pasta refuses it for IPv6. The kernel adds the
    /// address some time after the link is up, which is late on a busy machine. If it never does, pasta says why.
    fn await_uplink(&self, site: &mut StepSite) -> Result<(), StepError> {
        let Relay::Pasta { uplink, gateway: IpAddr::V6(_), .. } = &self.relay else { return Ok(()) };
        let deadline = Instant::now() + READY;
        while !has_link_local(site.stack(Some(&self.host))?, uplink.as_str())? && Instant::now() < deadline {
            site.check_goes_on()?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn finish(&self, site: &mut StepSite) -> Result<(), StepError> {
        let Some((link, mtu)) = self.relay.tap() else { return Ok(()) };
        site.stack(Some(&self.zone))?.set_mtu(link.as_str(), mtu.get())
    }
}

impl PartStep for StartRelay {
    fn describe(&self) -> String {
        let (program, StartRelay { host, zone, relay, .. }) = (self.name(), self);
        match relay {
            Relay::Pasta { link, mtu, .. } | Relay::Slirp4netns { link, mtu, .. } => {
                format!("{program} in {host}: tap {zone}/{link}, mtu {mtu}")
            }
            Relay::Proxy { udp, at, to } => {
                let transport = if *udp { "UDP" } else { "TCP" };
                format!("{program} in {host}: {transport} {at} to {to} of {zone}")
            }
        }
    }

    fn in_full(&self) -> String {
        let zone = PathBuf::from(format!("NETNS/{}", self.zone));
        format!("{}: {} {}", self.describe(), self.program.display(), self.relay.arguments(&zone).join(" "))
    }

    /// Starts the program, which outlives this process, as the namespaces do; undoing the journal ends it.
    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        self.await_uplink(site)?;
        let (zone, host) = (site.pin(&self.zone), site.namespace(&self.host)?);
        let mut said = site.nameless_file(&self.zone)?;
        let messages = said.try_clone().map_err(StepError::file("open", &zone))?;
        let mut command = self.command(&zone);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages);
        site.lab.iter().for_each(|lab| mark_process(&mut command, lab));
        let mut child = host.spawn(command, Outlive::Yes).map_err(StepError::kernel(&self.zone))?;
        let process = ProcessId::of(Pid(child.id())).map_err(StepError::kernel(&self.zone))?;
        let ready = self.settle(&mut child, &mut said, site).and_then(|()| self.finish(site));
        if let Err(error) = ready {
            end(process).map_err(StepError::kernel(&self.zone))?;
            return Err(error);
        }
        site.remember_relay(&self.zone, RelayProcess { program: self.name(), process });
        Ok(StepReceipt(Some(process.to_string())))
    }

    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        site.forget_relays(&self.zone);
        let Some(process) = receipt.and_then(StepReceipt::process) else { return Ok(Undone::Contained) };
        end(process).map(undone).map_err(StepError::kernel(&self.zone))
    }
}

fn has_link_local(stack: &mut NetStack, link: &str) -> Result<bool, StepError> {
    let index = stack.index(link)?;
    let all = stack.rtnl().addresses().map_err(stack.wrong(link))?;
    let is_link_local = |address: IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    Ok(all.iter().any(|found| found.link == index && is_link_local(found.net.addr())))
}

/// Ends a program. Returns `true` if it was still running.
fn end(process: ProcessId) -> Result<bool, vtax_sys::SysError> {
    let ran = !process.wait_end(Duration::ZERO)?;
    process.signal(Signal::KILL)?;
    process.wait_end(ENDED)?;
    process.reap();
    Ok(ran)
}

/// Returns the last line among the first messages of a program.
fn message(said: &mut File) -> ForeignText {
    let mut text = Vec::new();
    let read = said.rewind().and_then(|()| said.by_ref().take(SAID).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).filter(|_| read.is_ok());
    last.unwrap_or("it printed nothing").to_owned().into()
}

/// Returns `true` if a socket of the process's namespace is bound to the port of this address, on any address:
/// proc_pid_net(5).
fn is_bound(pid: u32, udp: bool, at: SocketAddr) -> bool {
    let transport = if udp { "udp" } else { "tcp" };
    let of = |family: &str| fs::read_to_string(format!("/proc/{pid}/net/{transport}{family}")).unwrap_or_default();
    ["", "6"].iter().any(|family| lists(&of(family), at.port()))
}

/// Returns `true` if the table lists the port. Its second column contains the local address and port in hexadecimal.
fn lists(table: &str, port: u16) -> bool {
    let of_line = |line: &str| u16::from_str_radix(line.split_whitespace().nth(1)?.rsplit_once(':')?.1, 16).ok();
    table.lines().skip(1).any(|line| of_line(line) == Some(port))
}

impl StepSite {
    /// Creates a file for the messages of a zone's program. It is already unlinked, so it is removed with the program.
    fn nameless_file(&self, zone: &Name) -> Result<File, StepError> {
        let path = self.pins().with_file_name(format!("{zone}.said"));
        let open = || -> io::Result<File> {
            let file = File::options().read(true).append(true).create(true).open(&path)?;
            fs::remove_file(&path).map(|()| file)
        };
        open().map_err(StepError::file("create", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(relay: Relay, program: &str) -> StartRelay {
        let [host, zone] = ["sut", "web"].map(|name| name.parse().expect("a name"));
        StartRelay { host, zone, program: program.into(), relay }
    }

    fn link(name: &str) -> LinkName {
        LinkName::new(name)
    }

    #[test]
    fn pasta_makes_a_tap_and_passes_no_ports_on() {
        for (address, gateway, wanted) in [
            ("198.18.0.9/31", "198.18.0.8", "-4 -f -q -e -I eth0 -i wire0 -a 198.18.0.9 -n 31 -g 198.18.0.8"),
            ("2001:2::9/127", "2001:2::8", "-6 -f -q -e -I eth0 -i wire0 -a 2001:2::9 -g 2001:2::8"),
        ] {
            let relay = Relay::Pasta {
                link: link("eth0"),
                mtu: Mtu::ETHERNET,
                uplink: link("wire0"),
                address: address.parse().expect("an address"),
                gateway: gateway.parse().expect("an address"),
            };
            let wanted = format!("{wanted} --runas 0 --netns-only -t none -u none -T none -U none --netns /run/web");
            assert_eq!(relay.arguments(Path::new("/run/web")).join(" "), wanted);
            assert_eq!(step(relay, "/usr/bin/pasta").describe(), "pasta in sut: tap web/eth0, mtu 1500");
        }
    }

    #[test]
    fn slirp4netns_has_the_largest_mtu_and_the_link_a_smaller_one() {
        let network = "198.18.0.128/25".parse().expect("a network");
        let relay = Relay::Slirp4netns { link: link("eth0"), mtu: Mtu::ETHERNET, network };
        assert_eq!(
            relay.arguments(Path::new("/run/web")).join(" "),
            "--netns-type=path --mtu=65520 --cidr=198.18.0.128/25 --disable-dns /run/web eth0"
        );
    }

    #[test]
    fn a_proxy_serves_one_port_of_one_transport() {
        let [at, to] = ["198.18.0.1:20000", "198.18.0.9:8080"].map(|socket| socket.parse().expect("an address"));
        let step = step(Relay::Proxy { udp: true, at, to }, "/usr/bin/docker-proxy");
        assert_eq!(step.describe(), "docker-proxy in sut: UDP 198.18.0.1:20000 to 198.18.0.9:8080 of web");
        assert_eq!(
            step.relay.arguments(Path::new("/run/web")).join(" "),
            "-proto udp -host-ip 198.18.0.1 -host-port 20000 -container-ip 198.18.0.9 -container-port 8080"
        );
    }

    #[test]
    fn a_bound_port_is_found_in_the_kernel_s_table() {
        let table = "  sl  local_address rem_address   st\n   0: 010012C6:4E20 00000000:0000 0A\n";
        assert!(lists(table, 20_000) && !lists(table, 20_001) && !lists("", 20_000));
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = socket.local_addr().expect("an address");
        assert!(is_bound(std::process::id(), false, at));
        drop(socket);
        assert!(!is_bound(std::process::id(), false, at));
    }
}
