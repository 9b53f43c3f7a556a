//! Access to the machine.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use vtax_sys::{
    SysError,
    ethtool::Ethtool,
    netlink::{IfIndex, Rtnl},
    netns::NetNs,
    tree::FileTree,
};

use crate::{error::ChangeError, namespace::NamespaceRef};

const BOOT_ID: &str = "sys/kernel/random/boot_id";

/// The machine: its `/proc`, `/sys` and `/etc`, and connections to the network namespaces in which changes are made.
#[derive(Debug)]
pub struct HostAccess {
    proc: FileTree,
    sys: FileTree,
    root: PathBuf,
    boot: Option<String>,
    own_links: Option<Rtnl>,
    /// Open namespaces, each with the reference by which it was opened.
    namespaces: HashMap<String, (NamespaceRef, OpenNamespace)>,
}

/// An open namespace, whose connections are opened when they are first needed.
#[derive(Debug)]
struct OpenNamespace {
    namespace: NetNs,
    links: Option<Rtnl>,
    sys: Option<FileTree>,
}

impl HostAccess {
    /// Returns access to this machine.
    pub fn live() -> Result<HostAccess, ChangeError> {
        HostAccess::of(Path::new("/"), FileTree::own_sysfs()?)
    }

    /// Returns access to the directories `proc`, `sys` and `etc` below this one. Links and threads are this machine's.
    pub fn below(root: &Path) -> Result<HostAccess, ChangeError> {
        HostAccess::of(root, FileTree::open(&root.join("sys"))?)
    }

    fn of(root: &Path, sys: FileTree) -> Result<HostAccess, ChangeError> {
        let proc = FileTree::open(&root.join("proc"))?;
        let boot = proc.read(BOOT_ID)?;
        Ok(HostAccess { proc, sys, root: root.to_owned(), boot, own_links: None, namespaces: HashMap::new() })
    }

    /// Returns the kernel's boot ID.
    pub(crate) fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    /// Returns the location of a file of this machine. `path` is absolute.
    pub fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a file of `/proc` as a process in the namespace sees it. None if the file or the namespace no longer
    /// exists.
    pub(crate) fn read_proc(&mut self, at: Option<&NamespaceRef>, path: &str) -> Result<Option<String>, SysError> {
        let Some(at) = at else { return self.proc.read(path) };
        match self.enter(at)? {
            Some(_) => self.inside(at, |proc| proc.read(path)),
            None => Ok(None),
        }
    }

    /// Returns true if a root process in the namespace may write a file of `/proc`. None if the file or the namespace
    /// no longer exists.
    pub(crate) fn is_writable(&mut self, at: Option<&NamespaceRef>, path: &str) -> Result<Option<bool>, SysError> {
        let Some(at) = at else { return self.proc.is_writable(path) };
        match self.enter(at)? {
            Some(_) => self.inside(at, |proc| proc.is_writable(path)),
            None => Ok(None),
        }
    }

    pub(crate) fn write_proc(&mut self, at: Option<&NamespaceRef>, path: &str, text: &str) -> Result<(), SysError> {
        let Some(at) = at else { return self.proc.write(path, text) };
        self.enter(at)?.ok_or_else(|| gone(at))?;
        self.inside(at, |proc| proc.write(path, text))
    }

    /// Returns the `/sys` that shows the links of the namespace. None if the namespace no longer exists.
    pub(crate) fn sys(&mut self, at: Option<&NamespaceRef>) -> Result<Option<&FileTree>, SysError> {
        let Some(at) = at else { return Ok(Some(&self.sys)) };
        let Some(open) = self.enter(at)? else { return Ok(None) };
        if open.sys.is_none() {
            open.sys = Some(FileTree::sysfs_of(&open.namespace)?);
        }
        Ok(open.sys.as_ref())
    }

    /// Returns a connection to the namespace's links. None if the namespace no longer exists.
    pub(crate) fn links(&mut self, at: Option<&NamespaceRef>) -> Result<Option<&mut Rtnl>, SysError> {
        let Some(at) = at else {
            if self.own_links.is_none() {
                self.own_links = Some(Rtnl::open()?);
            }
            return Ok(self.own_links.as_mut());
        };
        let Some(open) = self.enter(at)? else { return Ok(None) };
        if open.links.is_none() {
            open.links = Some(Rtnl::open_in(&open.namespace)?);
        }
        Ok(open.links.as_mut())
    }

    /// Returns the driver of a link, whatever its current name. None if the link or the namespace no longer exists.
    pub(crate) fn driver(&mut self, at: Option<&NamespaceRef>, index: IfIndex) -> Result<Option<Ethtool>, SysError> {
        let Some(links) = self.links(at)? else { return Ok(None) };
        let Some(link) = links.link(index)? else { return Ok(None) };
        match at {
            None => Ethtool::open(&link.name).map(Some),
            Some(at) => match self.enter(at)? {
                Some(open) => open.namespace.run(|| Ethtool::open(&link.name))?.map(Some),
                None => Ok(None),
            },
        }
    }

    /// Opens the namespace, which then exists as long as this `HostAccess`. None if it no longer exists.
    fn enter(&mut self, at: &NamespaceRef) -> Result<Option<&mut OpenNamespace>, SysError> {
        let key = at.to_string();
        if self.namespaces.get(&key).is_none_or(|(known, _)| known != at) {
            let Some(namespace) = at.open()? else { return Ok(None) };
            self.namespaces.insert(key.clone(), (at.clone(), OpenNamespace { namespace, links: None, sys: None }));
        }
        Ok(self.namespaces.get_mut(&key).map(|(_, open)| open))
    }

    fn inside<T: Send>(
        &self,
        at: &NamespaceRef,
        work: impl FnOnce(&FileTree) -> Result<T, SysError> + Send,
    ) -> Result<T, SysError> {
        let (_, open) = self.namespaces.get(&at.to_string()).ok_or_else(|| gone(at))?;
        open.namespace.run(|| work(&self.proc))?
    }
}

fn gone(at: &NamespaceRef) -> SysError {
    SysError::plain("enter network namespace", at, std::io::ErrorKind::NotFound.into())
}
