//! Kernel settings: a line of `/etc/sysctl.d`.

use vtax_change::{KeptLine, OwnFile};
use vtax_host::inspect::HostFacts;
use vtax_model::foreign::ForeignText;
use vtax_sys::sysctl::SysctlKey;

use super::{Line, Refusal};

/// Settings that are there only once a module is loaded, which is mostly after the files were read (sysctl.d(5)).
const OF_MODULES: [(&str, &str); 2] = [("net.netfilter.", "nf_conntrack"), ("net.bridge.", "br_netfilter")];

pub(super) fn line(facts: &HostFacts, key: &str, value: &str) -> Result<Line, Refusal> {
    let refuse = |_| Refusal::new("its name is none of a kernel setting", "set it by hand");
    let dotted = key.parse::<SysctlKey>().map_err(refuse)?.dotted();
    if let Some((_, module)) = OF_MODULES.into_iter().find(|(names, _)| dotted.starts_with(names)) {
        return Err(Refusal::new(
            format!("the setting is there only when the module {module} is loaded, and files are read before that"),
            format!("write {module} into a file of /etc/modules-load.d, and the setting into one of /etc/sysctl.d"),
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
    if !value.chars().all(|c| c.is_ascii_alphanumeric() || " \t._-".contains(c)) {
        let because = format!("the value {} has characters that such a file can't have", ForeignText::from(value));
        return Err(Refusal::new(because, "set it by hand"));
    }
    let line = KeptLine { file: OwnFile::Sysctl, before: format!("{dotted} = "), after: String::new() };
    Ok((line, value.to_owned()))
}
