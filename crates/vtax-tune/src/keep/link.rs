//! Settings of links: a udev rule for each, which identifies the device by its PCI address.

use vtax_change::{HostAccess, KeptLine, OwnFile};
use vtax_host::inspect::{HostFacts, LinkDevice};
use vtax_model::foreign::ForeignText;
use vtax_sys::pci::PciAddress;

use super::{Line, Refusal};
use crate::setting::HostSetting;

/// Paths of ethtool(8). udev has no search path.
const ETHTOOL: [&str; 2] = ["/usr/sbin/ethtool", "/sbin/ethtool"];

/// Means by which a udev rule sets a value.
enum Means {
    /// Write a file in the link's sysfs directory.
    Attribute(String),
    /// Run ethtool with these arguments around the link's name.
    Ethtool(&'static str, String),
}

/// The setting of a udev rule, its value, and the keys that set the same in other files.
struct Wanted<'a> {
    link: &'a str,
    means: Means,
    value: String,
    others: Vec<&'static str>,
}

pub(super) fn line(host: &HostAccess, facts: &HostFacts, setting: &HostSetting) -> Result<Line, Refusal> {
    let wanted = wanted(setting)?;
    let device = device(facts, wanted.link)?;
    let before = format!("{}{}", matching(device)?, assignment(host, &wanted.means)?);
    check_others(facts, &wanted)?;
    if !wanted.value.chars().all(|c| c.is_ascii_alphanumeric() || ",._-".contains(c)) {
        let because = format!("the value {} has unsupported characters", ForeignText::from(wanted.value));
        return Err(Refusal::new(because, "set it manually"));
    }
    Ok((KeptLine { file: OwnFile::Udev, before, after: "\"".to_owned() }, wanted.value))
}

fn wanted(setting: &HostSetting) -> Result<Wanted<'_>, Refusal> {
    let ethtool = |link, option, word: &str, value: String, others| {
        Ok(Wanted { link, means: Means::Ethtool(option, word.to_owned()), value, others: vec![others] })
    };
    match setting {
        HostSetting::Sysfs { path, value } => of_sysfs(path.raw(), value.raw()),
        HostSetting::LinkMtu { link, value } => Ok(Wanted {
            link: link.raw(),
            means: Means::Attribute("mtu".to_owned()),
            value: value.to_string(),
            others: vec!["MTUBytes", "mtu"],
        }),
        HostSetting::LinkFeature { link, feature, value } => {
            ethtool(link.raw(), "-K", feature.raw(), value.to_string(), of_feature(feature.raw()))
        }
        HostSetting::LinkRxRing { link, value } => ethtool(link.raw(), "-G", "rx", value.to_string(), "RxBufferSize"),
        HostSetting::LinkRxUsecs { link, value } => {
            ethtool(link.raw(), "-C", "rx-usecs", value.to_string(), "RxCoalesceSec")
        }
        HostSetting::LinkAdaptiveRx { link, value } => {
            ethtool(link.raw(), "-C", "adaptive-rx", value.to_string(), "UseAdaptiveRxCoalesce")
        }
        _ => Err(Refusal::new("it is not a link setting", "set it manually")),
    }
}

fn of_sysfs<'a>(path: &'a str, value: &str) -> Result<Wanted<'a>, Refusal> {
    let Some((link, file)) = path.strip_prefix("class/net/").and_then(|path| path.split_once('/')) else {
        let instead = match path.contains("/cpuidle/") {
            true => "use intel_idle.max_cstate=N or processor.max_cstate=N on the kernel command line",
            false => "use cpupower.service or a TuneD profile",
        };
        return Err(Refusal::new("a CPU driver may be loaded after all settings files were read", instead));
    };
    let others = if file.ends_with("/rps_cpus") { vec!["ReceivePacketSteeringCPUMask"] } else { vec![] };
    Ok(Wanted { link, means: Means::Attribute(file.to_owned()), value: value.to_owned(), others })
}

/// Returns the key of a feature in systemd.link(5).
fn of_feature(feature: &str) -> &'static str {
    match feature {
        "rx-checksum" => "ReceiveChecksumOffload",
        "rx-gro" => "GenericReceiveOffload",
        "rx-lro" => "LargeReceiveOffload",
        "tx-checksum-ip-generic" => "TransmitChecksumOffload",
        "tx-generic-segmentation" => "GenericSegmentationOffload",
        "tx-tcp-segmentation" => "TCPSegmentationOffload",
        _ => "",
    }
}

fn device<'a>(facts: &'a HostFacts, link: &str) -> Result<&'a LinkDevice, Refusal> {
    let found = facts.links.iter().find(|found| found.name == link);
    found.and_then(|link| link.device.as_ref()).ok_or_else(|| {
        Refusal::new(
            format!("{} has no device: a program recreates it", ForeignText::from(link)),
            "set it in the configuration of that program",
        )
    })
}

/// Returns the match of a udev rule: the PCI address, and the port if a device has several. The name isn't suitable,
/// because a link gets it after the rules have run, and another link may get it later.
fn matching(device: &LinkDevice) -> Result<String, Refusal> {
    let address = device.pci.as_ref().and_then(|pci| pci.raw().parse::<PciAddress>().ok());
    let Some(address) = address else {
        return Err(Refusal::new("its device is not on the PCI bus", "write a udev rule that matches it"));
    };
    let port = device.port.map_or_else(String::new, |port| format!(r#"ATTR{{dev_port}}=="{port}", "#));
    Ok(format!(r#"ACTION=="add", SUBSYSTEM=="net", KERNELS=="{address}", {port}"#))
}

fn assignment(host: &HostAccess, means: &Means) -> Result<String, Refusal> {
    let (Means::Attribute(word) | Means::Ethtool(_, word)) = means;
    if !word.chars().all(|c| c.is_ascii_alphanumeric() || "-_/".contains(c)) {
        return Err(Refusal::new("its name has unsupported characters", "set it manually"));
    }
    match means {
        Means::Attribute(file) => Ok(format!(r#"ATTR{{{file}}}=""#)),
        Means::Ethtool(option, word) => {
            let program = ETHTOOL.into_iter().find(|path| host.place(path).exists()).ok_or_else(|| {
                Refusal::new("a udev rule can set it only with ethtool, which is not installed", "install ethtool")
            })?;
            Ok(format!(r#"RUN+="{program} {option} $name {word} "#))
        }
    }
}

/// Refuses the setting if another file sets it as well. That line may apply to another link, but the user can easily
/// check the reported place.
fn check_others(facts: &HostFacts, wanted: &Wanted<'_>) -> Result<(), Refusal> {
    let attribute = match &wanted.means {
        Means::Attribute(file) => format!("ATTR{{{file}}}"),
        Means::Ethtool(..) => String::new(),
    };
    let same = |key: &ForeignText| *key == attribute.as_str() || wanted.others.iter().any(|other| *key == *other);
    let ours = OwnFile::Udev.path();
    match facts.owners.links.iter().find(|source| source.file != ours && same(&source.key)) {
        None => Ok(()),
        Some(other) => {
            let place = format!("{}:{}", other.file, other.line);
            let because = format!("{place} sets {}, for this link or others", other.key);
            Err(Refusal::new(
                because,
                format!("if it applies to this link, change that line of {place}; otherwise add one there"),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vtax_change::OnOff;
    use vtax_host::inspect::{HostLink, SystemRoot};

    use super::*;

    /// Returns the facts of a host with a NIC, a bridge, and these files.
    fn facts(files: &[(&str, &str)]) -> HostFacts {
        let device = |pci: &str| LinkDevice { pci: Some(pci.into()), port: Some(1), ..LinkDevice::default() };
        let link = |name: &str, device| HostLink { name: name.into(), device, ..HostLink::default() };
        let links = vec![link("eno1", Some(device("0000:3b:00.0"))), link("br0", None), link("odd", Some(device("x")))];
        let owners = HostFacts::read(&SystemRoot::invented(files.iter().copied()), &NoNics).owners;
        HostFacts { links, owners, ..HostFacts::default() }
    }

    struct NoNics;

    impl vtax_host::inspect::NicSource for NoNics {
        fn nic(&self, _: &str) -> vtax_model::nic::NicFacts {
            Default::default()
        }
    }

    fn host(ethtool: bool) -> (tempfile::TempDir, HostAccess) {
        let root = tempfile::tempdir().unwrap();
        for folder in ["proc", "sys", "usr/sbin"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        if ethtool {
            fs::write(root.path().join("usr/sbin/ethtool"), "").unwrap();
        }
        let host = HostAccess::below(root.path()).unwrap();
        (root, host)
    }

    fn rule(facts: &HostFacts, ethtool: bool, setting: HostSetting) -> String {
        match line(&host(ethtool).1, facts, &setting) {
            Ok((line, value)) => format!("{}{value}{}", line.before, line.after),
            Err(Refusal { because, instead }) => format!("{because}; {instead}"),
        }
    }

    fn mtu(link: &str) -> HostSetting {
        HostSetting::LinkMtu { link: link.into(), value: 9000 }
    }

    #[test]
    fn a_rule_names_the_device_and_not_the_link() {
        let of_eno1 = r#"ACTION=="add", SUBSYSTEM=="net", KERNELS=="0000:3b:00.0", ATTR{dev_port}=="1", "#;
        let (facts, link) = (facts(&[]), || ForeignText::from("eno1"));
        for (setting, sets) in [
            (mtu("eno1"), r#"ATTR{mtu}="9000""#),
            (HostSetting::of_link(&link(), "queues/rx-0/rps_cpus", "f"), r#"ATTR{queues/rx-0/rps_cpus}="f""#),
            (HostSetting::LinkRxRing { link: link(), value: 512 }, r#"RUN+="/usr/sbin/ethtool -G $name rx 512""#),
            (
                HostSetting::LinkAdaptiveRx { link: link(), value: OnOff(false) },
                r#"RUN+="/usr/sbin/ethtool -C $name adaptive-rx off""#,
            ),
            (
                HostSetting::LinkFeature { link: link(), feature: "rx-gro".into(), value: OnOff(true) },
                r#"RUN+="/usr/sbin/ethtool -K $name rx-gro on""#,
            ),
        ] {
            assert_eq!(rule(&facts, true, setting), format!("{of_eno1}{sets}"));
        }
    }

    #[test]
    fn a_setting_that_cannot_be_persisted_is_reported_with_an_alternative() {
        let facts = facts(&[]);
        let ring = HostSetting::LinkRxRing { link: "eno1".into(), value: 512 };
        for (setting, told) in [
            (mtu("br0"), "br0 has no device: a program recreates it; set it in the configuration of that program"),
            (mtu("odd"), "its device is not on the PCI bus; write a udev rule that matches it"),
            (ring, "a udev rule can set it only with ethtool, which is not installed; install ethtool"),
            (
                HostSetting::sysfs("devices/system/cpu/cpu0/cpufreq/x".into(), 1),
                "a CPU driver may be loaded after all settings files were read; use cpupower.service or a TuneD profile",
            ),
            (HostSetting::of_link(&"eno1".into(), "a\"}b", 1), "its name has unsupported characters; set it manually"),
            (
                HostSetting::of_link(&"eno1".into(), "mtu", "1\", RUN+=\"x"),
                "the value 1\", RUN+=\"x has unsupported characters; set it manually",
            ),
        ] {
            assert_eq!(rule(&facts, false, setting), told);
        }
    }

    #[test]
    fn a_setting_in_another_programs_file_is_not_overridden() {
        let theirs = [("etc/systemd/network/10-lan.link", "[Link]\nMTUBytes=1400\n")];
        let told = rule(&facts(&theirs), true, mtu("eno1"));
        assert!(told.starts_with("/etc/systemd/network/10-lan.link:2 sets MTUBytes, "), "{told}");
        let theirs = [("etc/udev/rules.d/70-a.rules", "SUBSYSTEM==\"net\", ATTR{mtu}=\"1400\"\n")];
        let told = rule(&facts(&theirs), true, mtu("eno1"));
        assert!(told.starts_with("/etc/udev/rules.d/70-a.rules:1 sets ATTR{mtu}, "), "{told}");
        // Another setting, and a file of vtax's.
        let ours = [
            ("etc/udev/rules.d/90-vtax.rules", "SUBSYSTEM==\"net\", ATTR{mtu}=\"1400\"\n"),
            ("etc/systemd/network/10-lan.link", "[Link]\nRxBufferSize=512\n"),
        ];
        assert!(rule(&facts(&ours), true, mtu("eno1")).ends_with(r#"ATTR{mtu}="9000""#));
    }
}
