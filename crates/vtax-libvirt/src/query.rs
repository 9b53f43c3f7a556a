//! Queries libvirt about one domain.

use vtax_model::foreign::ForeignText;

use super::{
    error::LibvirtError,
    virsh::{Question, Virsh, VirshRefusal},
    xml::{self, Described},
};

pub struct DomainQuery<'a> {
    pub virsh: &'a dyn Virsh,
    pub name: &'a str,
}

impl DomainQuery<'_> {
    pub fn described(&self) -> Result<Described, LibvirtError> {
        let text = self.virsh.ask(Question::Xml(self.name)).map_err(|refusal| self.refused(refusal))?;
        let domain = || ForeignText::from(self.name);
        let described = xml::read(&text).map_err(|source| LibvirtError::Xml { domain: domain(), source })?;
        match described.record.name == self.name {
            true => Ok(described),
            false => Err(LibvirtError::NoName { domain: domain(), name: described.record.name }),
        }
    }

    /// Returns the error for a question that virsh refused. Not knowing the domain is also a refusal.
    fn refused(&self, refusal: VirshRefusal) -> LibvirtError {
        if !matches!(&refusal, VirshRefusal::Said(text) if text.contains("failed to get domain")) {
            return LibvirtError::refused(self.name, refusal);
        }
        match self.virsh.ask(Question::Names) {
            Ok(names) => {
                let names = names.lines().filter(|name| !name.is_empty()).map(Into::into).collect();
                LibvirtError::NoDomain { domain: self.name.into(), names }
            }
            Err(refusal) => LibvirtError::refused(self.name, refusal),
        }
    }

    pub fn check_state(&self) -> Result<(), LibvirtError> {
        let state = self.virsh.ask(Question::State(self.name));
        let state = state.map_err(|refusal| LibvirtError::refused(self.name, refusal))?.trim().to_owned();
        // Some versions of libvirt report `idle` for a running domain that is currently doing nothing.
        match ["running", "idle"].contains(&state.as_str()) {
            true => Ok(()),
            false => Err(LibvirtError::NotRunning { domain: self.name.into(), state: state.into() }),
        }
    }
}
