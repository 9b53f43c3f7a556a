//! `vtax ldm import`: adds a domain with the constraints of a libvirt domain.

use std::fmt;

use clap::Args;
use vtax_domain::DomainImport;
use vtax_libvirt::LibvirtName;
use vtax_model::topology::Name;

use super::target::LdmTarget;
use crate::{
    exit::{Exit, Stop},
    terminal::print,
};

#[derive(Debug, Args)]
pub(crate) struct ImportDomainArgs {
    /// Libvirt domain, running or not, e.g. libvirt:web
    #[arg(value_name = "libvirt:NAME")]
    source: LibvirtName,
    /// Name of the new domain, e.g. mars [default: the libvirt domain's name]
    #[arg(long = "as", value_name = "DOMAIN")]
    name: Option<Name>,
}

pub(super) fn import(args: ImportDomainArgs, host: &LdmTarget<'_>) -> Result<Exit, Stop> {
    let import = host.import(args.source, args.name)?;
    print(&Report(&import).to_string())?;
    Ok(Exit::Done)
}

/// Report of an import.
struct Report<'a>(&'a DomainImport);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DomainImport { source, domain, kept, lost } = self.0;
        writeln!(f, "Imported libvirt domain {source} as {domain}:")?;
        kept.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        if !lost.is_empty() {
            writeln!(f, "Not imported:")?;
        }
        lost.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_a_line_that_no_text_of_another_host_can_forge() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).into()).collect();
        let (source, domain) = ("web".into(), "mars".parse().expect("a name"));
        let mut import = DomainImport { source, domain, kept: lines(&["2 vCPUs"]), lost: lines(&["a\nb", "c"]) };
        let told = "Imported libvirt domain web as mars:\n    2 vCPUs\nNot imported:\n    a\\nb\n    c\n";
        assert_eq!(Report(&import).to_string(), told);
        import.lost.clear();
        assert!(!Report(&import).to_string().contains("Not imported"));
    }
}
