use std::{cell::RefCell, io, time::Duration};

use vtax_model::{foreign::ForeignText, run::DomainNic};

use super::*;

const REAL: &str = include_str!("../../../../../../vtax-libvirt/src/fixtures/real.xml");
const VHOST: &str = include_str!("../../../../../../vtax-libvirt/src/fixtures/vhost.xml");
const KINDS: &str = include_str!("../../../../../../vtax-libvirt/src/fixtures/kinds.xml");

/// A libvirt with one domain.
struct Fake {
    name: &'static str,
    xml: String,
    state: &'static str,
    addresses: [Result<&'static str, &'static str>; 3],
    asked: RefCell<Vec<AddressSource>>,
}

impl Fake {
    fn of(name: &'static str, xml: &str) -> Fake {
        let none = Ok("");
        Fake { name, xml: xml.to_owned(), state: "running\n\n", addresses: [none; 3], asked: RefCell::default() }
    }
}

impl Virsh for Fake {
    fn ask(&self, question: Question<'_>) -> Result<String, VirshRefusal> {
        let said = |text: &str| Err(VirshRefusal::Said(text.to_owned()));
        match question {
            Question::Names => Ok(format!("{}\nother\n\n", self.name)),
            Question::Xml(name) if name == self.name || name == "7" => Ok(self.xml.clone()),
            Question::Xml(name) => said(&format!("error: failed to get domain '{name}'\n")),
            Question::State(_) => Ok(self.state.to_owned()),
            Question::Addresses(_, source) => {
                self.asked.borrow_mut().push(source);
                self.addresses[source as usize].map(str::to_owned).or_else(said)
            }
            Question::Versions => Ok("Running hypervisor: QEMU 9.2.0\n".to_owned()),
        }
    }
}

/// A libvirt that gives this answer to every query.
struct Deaf(fn() -> VirshRefusal);

impl Virsh for Deaf {
    fn ask(&self, _: Question<'_>) -> Result<String, VirshRefusal> {
        Err((self.0)())
    }
}

fn refused(virsh: &dyn Virsh, name: &str) -> String {
    Domain::of(virsh, name).err().expect("refused").to_string()
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn row(name: &str) -> Row {
    name.parse().expect("a row")
}

#[test]
fn a_domain_that_cannot_be_an_endpoint_is_refused_with_a_remedy() {
    let fake = Fake::of("db", VHOST);
    let told = [
        refused(&fake, "bd"),
        refused(&fake, "7"),
        refused(&Fake { state: "shut off\n", ..Fake::of("db", VHOST) }, "db"),
        refused(&Fake { state: "paused\n", ..Fake::of("db", VHOST) }, "db"),
        refused(&Fake::of("db", "<domain type='kvm'>"), "db"),
        refused(&Deaf(|| VirshRefusal::NoProgram(io::ErrorKind::NotFound.into())), "db"),
        refused(&Deaf(|| VirshRefusal::Silent(Duration::from_secs(20))), "db"),
        refused(
            &Deaf(|| {
                let text = "error: failed to connect to the hypervisor\nerror: Failed to connect socket to \
                    '/var/run/libvirt/libvirt-sock-ro': No such file or directory\n";
                VirshRefusal::Said(text.to_owned())
            }),
            "db",
        ),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_unknown_address_must_be_given() {
    let agent = Err("error: Failed to query for interfaces addresses\nerror: argument unsupported: no agent\n");
    let fake = Fake { addresses: [Ok(""), Err("error: wrong nlmsg len\n"), agent], ..Fake::of("db", VHOST) };
    let domain = Domain::of(&fake, "db").expect("it is there");
    insta::assert_snapshot!(domain.entrance(None).expect_err("nobody knows").to_string());
    assert_eq!(domain.entrance(Some(address("192.0.2.9"))).ok(), Some(address("192.0.2.9")));
}

const ONE: &str = "vnet6 52:54:00:aa:00:01 ipv4 192.0.2.1/24\n";
const TWO: &str = "vnet7 52:54:00:aa:00:02 ipv4 198.51.100.1/24\n";

#[test]
fn ssh_knocks_where_libvirt_has_seen_the_guest() {
    let fake = Fake { addresses: [Ok(ONE), Ok(TWO), Ok("")], ..Fake::of("db", VHOST) };
    let domain = Domain::of(&fake, "db").expect("it is there");
    let knocks = |measured: Option<&str>| domain.entrance(measured.map(address)).expect("known").to_string();
    assert_eq!(knocks(None), "192.0.2.1");
    assert_eq!(knocks(Some("198.51.100.1")), "198.51.100.1");
    // A network only for measurements, which this machine may be unable to reach.
    assert_eq!(knocks(Some("203.0.113.1")), "192.0.2.1");
}

#[test]
fn a_guest_s_agent_is_asked_only_if_something_is_unknown() {
    let real = "vnet0 52:54:00:11:22:33 ipv4 192.0.2.2/24\n";
    let known = Fake { addresses: [Ok(real), Ok(""), Ok("")], ..Fake::of("web server.v1", REAL) };
    Domain::of(&known, "web server.v1").expect("it is there");
    assert_eq!(*known.asked.borrow(), [AddressSource::Lease, AddressSource::Arp]);
    let several = Fake { addresses: [Ok(ONE), Ok(""), Ok("")], ..Fake::of("db", VHOST) };
    Domain::of(&several, "db").expect("it is there");
    assert_eq!(several.asked.borrow().len(), 3);
}

fn nic(domain: &Domain, at: &str) -> Option<DomainNic> {
    domain.at(address(at)).record.nic
}

#[test]
fn the_nic_is_the_one_with_the_address() {
    let fake = Fake { addresses: [Ok(ONE), Ok(TWO), Ok("")], ..Fake::of("db", VHOST) };
    let domain = Domain::of(&fake, "db").expect("it is there");
    let source = |at: &str| nic(&domain, at)?.source;
    assert_eq!(source("192.0.2.1").as_ref().map(ForeignText::raw), Some("virbr0"));
    assert_eq!(source("198.51.100.1").as_ref().map(ForeignText::raw), Some("br-data"));
    assert_eq!(source("203.0.113.1"), None, "it isn't guessed");
    let only = Domain::of(&Fake::of("web server.v1", REAL), "web server.v1").expect("it is there");
    assert_eq!(
        nic(&only, "203.0.113.1").and_then(|nic| nic.source).as_ref().map(ForeignText::raw),
        Some("h4br"),
        "there is one only"
    );
    let agent = Ok("ens9 aa:bb:cc:00:00:01 ipv4 203.0.113.7/24\n");
    let zoo = Fake { addresses: [Ok(""), Ok(""), agent], ..Fake::of("zoo", KINDS) };
    let zoo = Domain::of(&zoo, "zoo").expect("it is there");
    let pci = nic(&zoo, "203.0.113.7").and_then(|nic| nic.pci);
    assert_eq!(pci.as_ref().map(ForeignText::raw), Some("0000:af:00.0"), "an address of no <interface>");
}

#[test]
fn domains_are_reported_and_a_wrong_label_loudly() {
    let fake = Fake { addresses: [Ok(ONE), Ok(TWO), Ok("")], ..Fake::of("db", VHOST) };
    let domain = Domain::of(&fake, "db").expect("it is there");
    let (open, vhost) = (domain.at(address("192.0.2.1")), domain.at(address("198.51.100.1")));
    let mut told = notes(row("paravirtual:vhost"), &vhost);
    told.extend(notes(row("paravirtual:vhost"), &open));
    told.extend(notes(row("paravirtual"), &domain.at(address("203.0.113.1"))));
    let wrong = |row_: &str, measured: &MeasuredDomain| told::wrong_label(row(row_), "libvirt:db", &measured.record);
    told.extend(wrong("paravirtual:userspace", &vhost));
    told.extend(wrong("emulated", &open));
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(told.join("\n"));
    assert_eq!(wrong("paravirtual:vhost", &vhost).or(wrong("paravirtual", &vhost)).or(wrong("epoll", &vhost)), None);
    assert_eq!(wrong("paravirtual:vhost", &open), None, "it isn't known");
}
