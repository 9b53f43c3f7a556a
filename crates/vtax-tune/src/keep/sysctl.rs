//! Kernel settings: a line in `/etc/sysctl.d`.

use vtax_change::{KeptLine, OwnFile};
use vtax_host::inspect::{HostFacts, UnusableFile};
use vtax_model::foreign::ForeignText;
use vtax_sys::sysctl::SysctlKey;

use super::{Line, Refusal};

/// Settings that exist only once a module is loaded, usually after the files were read (sysctl.d(5)).
const OF_MODULES: [(&str, &str); 2] = [("net.netfilter.", "nf_conntrack"), ("net.bridge.", "br_netfilter")];

/// Files in which others may set the same values.
const FILES: [&str; 9] = [
    "/etc/sysctl.d",
    "/etc/sysctl.d/*",
    "/etc/sysctl.conf",
    "/run/sysctl.d",
    "/run/sysctl.d/*",
    "/usr/local/lib/sysctl.d",
    "/usr/local/lib/sysctl.d/*",
    "/usr/lib/sysctl.d",
    "/usr/lib/sysctl.d/*",
];

pub(super) fn line(facts: &HostFacts, key: &str, value: &str) -> Result<Line, Refusal> {
    let refuse = |_| Refusal::new("its name is not that of a kernel setting", "set it manually");
    let dotted = key.parse::<SysctlKey>().map_err(refuse)?.dotted();
    if let Some((_, module)) = OF_MODULES.into_iter().find(|(names, _)| dotted.starts_with(names)) {
        return Err(Refusal::new(
            format!("the setting exists only while the module {module} is loaded, and files are read before that"),
            format!("write {module} to a file in /etc/modules-load.d, and the setting to one in /etc/sysctl.d"),
        ));
    }
    let ours = OwnFile::Sysctl.path();
    if let Some(other) = facts.owners.sources_of(&dotted).filter(|source| source.file != ours).last() {
        let place = format!("{}:{}", other.file, other.line);
        return Err(Refusal::new(
            format!("{place} sets it to {}", other.value),
            format!("change that line of {place}"),
        ));
    }
    let is_file_of_sysctls = |file: &&UnusableFile| FILES.iter().any(|pattern| file.is_at(pattern));
    if let Some(file) = facts.unusable.iter().find(is_file_of_sysctls) {
        let because = format!("{} may set it, but is unreadable: {}", file.file, file.why);
        return Err(Refusal::new(because, "run vtax as root"));
    }
    if !value.chars().all(|c| c.is_ascii_alphanumeric() || " \t._-".contains(c)) {
        let because = format!("the value {} has characters not allowed in such a file", ForeignText::from(value));
        return Err(Refusal::new(because, "set it manually"));
    }
    let line = KeptLine { file: OwnFile::Sysctl, before: format!("{dotted} = "), after: String::new() };
    Ok((line, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(facts: &HostFacts, key: &str, value: &str) -> String {
        line(facts, key, value).err().map_or_else(String::new, |refusal| refusal.because)
    }

    #[test]
    fn a_sysctl_that_cannot_be_persisted_is_reported() {
        let facts = HostFacts::default();
        assert_eq!(refused(&facts, "net.ipv4.tcp_rmem", "4096 131072 6291456"), "");
        assert!(refused(&facts, "net.bridge.bridge-nf-call-iptables", "0").contains("br_netfilter"));
        assert!(refused(&facts, "net/netfilter/nf_conntrack_max", "1").contains("nf_conntrack"));
        assert!(refused(&facts, "net.core.x", "1\nkernel.panic = 1").contains("characters"));
        assert!(refused(&facts, "../etc", "1").contains("not that of a kernel setting"));
    }

    #[test]
    fn an_unreadable_file_may_set_the_same() {
        let unusable = UnusableFile { file: "/etc/sysctl.d/99-secret.conf".into(), why: "Permission denied".into() };
        let facts = HostFacts { unusable: vec![unusable], ..HostFacts::default() };
        assert!(refused(&facts, "net.core.rmem_max", "1").starts_with("/etc/sysctl.d/99-secret.conf may set it"));
    }
}
