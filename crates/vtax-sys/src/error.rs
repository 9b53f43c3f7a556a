//! The error type of this crate. Each message says what was tried on which object, why the kernel refused it, and where
//! known, what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::netns::NsId;
use crate::pci::PciError;
use crate::process::Pid;
use crate::ring::NoRing;

/// Result type of this crate's functions.
pub type Result<T, E = SysError> = std::result::Result<T, E>;

/// Reasons why a request to the kernel was not executed.
///
/// The kernel's answer is a field named `errno`, not an error `source`, because the message already contains it.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[non_exhaustive]
pub enum SysError {
    #[error("{}{}", refusal(operation, object, errno, detail), after_all(*remedy))]
    #[diagnostic(code("kernel"))]
    Os {
        operation: &'static str,
        object: String,
        errno: io::Error,
        detail: Option<String>,
        remedy: Option<&'static str>,
    },
    /// Like [`SysError::Os`], with the error number `EPERM` or `EACCES`.
    #[error("{}{}", refusal(operation, object, errno, detail), after_all(*remedy))]
    #[diagnostic(code("no-privilege"))]
    NotPermitted {
        operation: &'static str,
        object: String,
        errno: io::Error,
        detail: Option<String>,
        remedy: Option<&'static str>,
    },
    #[error("cannot {operation} {object}: no answer from the kernel within {waited:?}")]
    #[diagnostic(code("not-in-time"))]
    Timeout { operation: &'static str, object: String, waited: Duration },
    #[error("cannot {operation} {object}: malformed answer from the kernel: {detail}")]
    #[diagnostic(code("unreadable-answer"))]
    Malformed { operation: &'static str, object: String, detail: String },
    /// The list changed each time it was read (`NLM_F_DUMP_INTR`).
    #[error("cannot {operation}: the list changed while it was read, {attempts} times in a row")]
    #[diagnostic(code("list-keeps-changing"))]
    Unstable { operation: &'static str, attempts: u32 },
    #[error("{value:?} is not a valid {what}: {why}")]
    #[diagnostic(code("bad-value"))]
    Invalid { what: &'static str, value: String, why: &'static str },
    #[error("link {name} does not exist in this network namespace")]
    #[diagnostic(code("no-such-link"))]
    NoSuchLink { name: String },
    #[error("this kernel has no link kind {kind}: use a kernel that has it built in, or install its module")]
    #[diagnostic(code("no-such-link-kind"))]
    NoSuchKind { kind: String },
    #[error("this kernel has no {feature}: use a kernel with {}", feature.options())]
    #[diagnostic(code("no-such-kernel-feature"))]
    NoFeature { feature: Feature },
    #[error("{}; {remedy}", no_queue(link, file, why))]
    #[diagnostic(code("no-macvtap-queue"))]
    NoQueue { link: String, file: PathBuf, why: String, foreign: bool, remedy: &'static str },
    #[error("{path} was left unchanged: it holds network namespace {found}, not {expected}")]
    #[diagnostic(code("wrong-namespace"))]
    WrongNamespace { path: String, expected: NsId, found: NsId },
    #[error("{path} is not a network namespace")]
    #[diagnostic(code("not-a-namespace"))]
    NotANamespace { path: String },
    #[error("{}; {remedy}", no_user_namespace(step, errno, reason))]
    #[diagnostic(code("no-user-namespace"))]
    UserNamespaceRefused { step: &'static str, errno: io::Error, reason: &'static str, remedy: &'static str },
    #[error("cannot change the user namespace: this process has {threads} threads; change it before starting threads")]
    #[diagnostic(code("defect"))]
    Threaded { threads: u64 },
    #[error("kernel setting {key} did not accept {wrote:?}: it reads back as {read:?}")]
    #[diagnostic(code("setting-not-taken"))]
    SysctlNotTaken { key: String, wrote: String, read: String },
    #[error("{path} {why}; use a directory that belongs to you and is not writable by others")]
    #[diagnostic(code("unsafe-directory"))]
    NotPrivate { path: PathBuf, why: &'static str },
    #[error("the machine was neither powered off nor rebooted: only process 1 may do that, and this is process {pid}")]
    #[diagnostic(code("not-first-process"))]
    NotFirst { pid: Pid },
    #[error(transparent)]
    #[diagnostic(transparent)]
    NoRing(#[from] NoRing),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Pci(#[from] PciError),
}

/// Optional parts of the kernel, which may be missing from its build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Feature {
    /// Bridges with VLANs per port.
    #[strum(serialize = "VLAN filtering of bridges")]
    VlanFiltering,
    /// Rules for the frames that bridges forward.
    #[strum(serialize = "nftables for bridges")]
    BridgeFilter,
    /// Redirection of a port's received frames through another link.
    #[strum(serialize = "redirection of received frames")]
    Redirection,
}

impl Feature {
    /// Returns the build options that provide the feature.
    pub fn options(self) -> &'static str {
        match self {
            Self::VlanFiltering => "CONFIG_BRIDGE_VLAN_FILTERING",
            Self::BridgeFilter => {
                "CONFIG_NF_TABLES and CONFIG_NF_TABLES_BRIDGE, or load the modules nf_tables and nft_meta_bridge"
            }
            Self::Redirection => {
                "CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_U32 and CONFIG_NET_ACT_MIRRED, or load the modules sch_ingress, cls_u32 and act_mirred"
            }
        }
    }
}

impl SysError {
    /// Returns the kernel's error number, if the kernel refused the request.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { errno, .. } | Self::NotPermitted { errno, .. } | Self::UserNamespaceRefused { errno, .. } => {
                errno.raw_os_error()
            }
            _ => None,
        }
    }

    /// Returns true if the caller lacks the privilege: then the user should become root, or vtax should enter its own
    /// user namespace.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    /// Returns true if the object doesn't exist (ENOENT).
    pub fn is_missing(&self) -> bool {
        self.errno() == Some(libc::ENOENT)
    }

    /// Returns the remedy, where one is known.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Os { remedy, .. } | Self::NotPermitted { remedy, .. } => *remedy,
            Self::NoQueue { remedy, .. } | Self::UserNamespaceRefused { remedy, .. } => Some(remedy),
            _ => None,
        }
    }

    /// Returns the message without the remedy.
    pub fn why(&self) -> String {
        match self {
            Self::Os { operation, object, errno, detail, .. }
            | Self::NotPermitted { operation, object, errno, detail, .. } => refusal(operation, object, errno, detail),
            Self::NoQueue { link, file, why, .. } => no_queue(link, file, why),
            Self::UserNamespaceRefused { step, errno, reason, .. } => no_user_namespace(step, errno, reason),
            _ => self.to_string(),
        }
    }

    pub(crate) fn os(operation: &'static str, object: impl fmt::Display, errno: impl Into<io::Error>) -> Self {
        let errno = errno.into();
        let remedy = remedy_for(&errno);
        Self::refused(operation, object, errno, remedy)
    }

    /// Returns the error of a failed system call, with a remedy.
    pub(crate) fn refused(
        operation: &'static str,
        object: impl fmt::Display,
        errno: io::Error,
        remedy: Option<&'static str>,
    ) -> Self {
        let object = object.to_string();
        match errno.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { operation, object, errno, detail: None, remedy },
            _ => Self::Os { operation, object, errno, detail: None, remedy },
        }
    }

    /// Adds the kernel's own text.
    pub(crate) fn with_detail(mut self, words: Option<String>) -> Self {
        if let Self::Os { detail, .. } | Self::NotPermitted { detail, .. } = &mut self {
            *detail = words;
        }
        self
    }

    /// Returns the error of a failed call without a remedy, such as one of another crate.
    pub fn plain(operation: &'static str, object: impl fmt::Display, errno: io::Error) -> Self {
        Self::Os { operation, object: object.to_string(), errno, detail: None, remedy: None }
    }

    pub(crate) fn invalid(what: &'static str, value: impl fmt::Display, why: &'static str) -> Self {
        Self::Invalid { what, value: value.to_string(), why }
    }

    pub(crate) fn malformed(operation: &'static str, object: impl fmt::Display, detail: impl fmt::Display) -> Self {
        Self::Malformed { operation, object: object.to_string(), detail: detail.to_string() }
    }
}

/// Returns the remedy for an error number, where it is the same for every call.
pub(crate) fn remedy_for(errno: &io::Error) -> Option<&'static str> {
    match errno.raw_os_error()? {
        libc::EPERM | libc::EACCES => Some("run as root, or let vtax use its own user namespace"),
        libc::EEXIST => Some("choose another name, or remove the existing object"),
        libc::EMFILE => Some("raise the limit on open files (ulimit -n)"),
        libc::EROFS => Some("if this is a container, run vtax on the host"),
        libc::ENOSPC => Some("free some space, or raise the limit"),
        _ => None,
    }
}

fn refusal(operation: &str, object: &str, errno: &io::Error, detail: &Option<String>) -> String {
    format!("cannot {operation} {object}: {errno}{}", in_the_kernels_words(detail))
}

fn no_queue(link: &str, file: &Path, why: &str) -> String {
    format!("cannot open a queue of {link} at {}: {why}", file.display())
}

fn no_user_namespace(step: &str, errno: &io::Error, reason: &str) -> String {
    format!("cannot enter a user namespace ({step}: {errno}): {reason}")
}

fn after_all(remedy: Option<&str>) -> String {
    remedy.map_or(String::new(), |remedy| format!("; {remedy}"))
}

fn in_the_kernels_words(detail: &Option<String>) -> String {
    detail.as_ref().map_or(String::new(), |detail| format!(" (kernel message: {detail})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_object_kernel_message_and_remedy() {
        let error = SysError::Os {
            operation: "create veth link",
            object: "v0".into(),
            errno: io::Error::from_raw_os_error(libc::EPERM),
            detail: Some("nope".into()),
            remedy: remedy_for(&io::Error::from_raw_os_error(libc::EPERM)),
        };
        let text = error.to_string();
        for part in ["create veth link", "v0", "not permitted", "nope", "root"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert!(error.is_permission());
    }

    /// A message that contains its remedy twice lost both, and one with a different ending kept it.
    #[test]
    fn the_reason_and_the_remedy_make_the_message() {
        let errno = || io::Error::from_raw_os_error(libc::ENOENT);
        let remedy = "load the module tun";
        let errors = [
            SysError::refused("open", "/dev/net/tun; load the module tun", errno(), Some(remedy)),
            SysError::refused("open", "/dev/net/tun", io::Error::from_raw_os_error(libc::EACCES), Some(remedy)),
            SysError::refused("open", "/dev/net/tun", errno(), None),
            SysError::NoQueue {
                link: "tap0".into(),
                file: "/dev/tap7".into(),
                why: "refused".into(),
                foreign: false,
                remedy,
            },
            SysError::UserNamespaceRefused { step: "unshare", errno: errno(), reason: "it is off", remedy },
            SysError::NoSuchLink { name: "eth9".into() },
        ];
        for error in errors {
            let remedy = error.remedy().map_or(String::new(), |remedy| format!("; {remedy}"));
            assert_eq!(error.to_string(), error.why() + &remedy);
        }
    }
}
