//! Console service of a host: one process at a time.

use std::{
    fs::{self, File, TryLockError},
    io,
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use vtax_journal::JournalError;
use vtax_model::domain::Configuration;
use vtax_sys::{
    directory,
    process::{Pid, ProcessId, Signal},
    record::{self, RecordError, RecordUse},
};

use crate::{bound::BoundDomain, domains::Domains, error::BindError, store::LockedStore, supervisor_process::living};

/// File with the process of the service. The service holds the lock of the directory that contains it: whoever replaces
/// the file doesn't replace the lock.
const SERVICE: &str = "vntsd";
/// Time within which a killed process exits.
const KILLED: Duration = Duration::from_secs(2);
/// Time within which the service notices that a domain is no longer bound, and stops listening on its port.
const RELEASED: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

impl Domains {
    /// Acquires the right to be the console service of this host, until the file is closed. None if another process has
    /// it.
    pub fn lock_service(&self) -> Result<Option<File>, BindError> {
        let folder = self.folder();
        directory::create_private(folder).map_err(BindError::file("create", folder))?;
        let file = File::open(folder).map_err(BindError::file("open", folder))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(BindError::file("lock", folder)(error)),
        }
        let path = folder.join(SERVICE);
        record::open(&path, RecordUse::Read).map_err(JournalError::from)?;
        let own = ProcessId::of(Pid::own()).map_err(BindError::kernel("the console service"))?;
        record::replace(&path, own.to_string().as_bytes()).map_err(JournalError::from)?;
        Ok(Some(file))
    }

    /// Releases the right, under the lock of the domains: the next holder of that lock sees that there is no service.
    pub fn unlock_service(&self, service: File, _locked: &LockedStore) -> Result<(), BindError> {
        let path = self.folder().join(SERVICE);
        let removed = fs::remove_file(&path);
        drop(service);
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BindError::file("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Returns true if nothing listens on an unassigned port. After a domain was unbound, the service still does for a
    /// moment.
    pub(crate) fn is_free(&self, port: u16) -> bool {
        let until = Instant::now() + RELEASED;
        loop {
            // Checked first: the service may release the port at any moment.
            let is_ours = self.service().is_ok_and(|service| service.is_some_and(|it| listens(it.pid, port)));
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return true;
            }
            if !is_ours || Instant::now() > until {
                return false;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns the console service, if it is alive. Its lock shows that, too, whatever the record contains.
    ///
    /// # Errors
    /// [`RecordError::NotAFile`] if something else is in place of the record.
    pub(crate) fn service(&self) -> Result<Option<ProcessId>, RecordError> {
        let path = self.folder().join(SERVICE);
        record::open(&path, RecordUse::Read)?;
        Ok(living(record::read_word(&path).ok().flatten(), self.folder()))
    }

    /// Starts the console service in the background, if a domain has a console that isn't served. The service exits on
    /// its own when no domain is bound. A domain with an unreadable record has no console, and doesn't prevent the
    /// others from having one.
    pub fn keep_service(&self, configuration: &Configuration) -> Result<(), BindError> {
        let is_needed = !configuration.consoles.is_empty() && self.survey()?.bound.iter().any(BoundDomain::has_console);
        if !is_needed || self.is_served() {
            return Ok(());
        }
        let failed = |error| BindError::file("start", Path::new("the console service"))(error);
        let mut command = self.command(&["vntsd", "--while-bound"]).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C in this terminal must not end it.
        command.process_group(0).spawn().map(drop).map_err(failed)
    }

    /// Returns true if the console service of this host is alive, or if that is unknown, which each command reports.
    pub(crate) fn is_served(&self) -> bool {
        self.service().map_or(true, |service| service.is_some())
    }

    pub(crate) fn end_service(&self) {
        if let Ok(Some(process)) = self.service() {
            // It may have exited on its own.
            let _ = process.signal(Signal::KILL);
            let _ = process.wait_end(KILLED);
        }
    }
}

/// Returns true if the process listens on this port (proc_pid_net(5)).
fn listens(pid: Pid, port: u16) -> bool {
    let sockets = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let listening: Vec<String> = sockets.lines().filter_map(|line| listener(line, port)).collect();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut open = files.filter_map(|file| fs::read_link(file.path()).ok());
    open.any(|file| listening.iter().any(|socket| file.as_os_str() == socket.as_str()))
}

/// Returns the name of a descriptor of the socket in this line, if the socket listens on the port.
fn listener(line: &str, port: u16) -> Option<String> {
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (_, local) = fields.get(1)?.split_once(':')?;
    let is_it = u16::from_str_radix(local, 16) == Ok(port) && fields.get(3) == Some(&LISTENS);
    is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]"))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domains::TestHost;

    /// Each changing command would start a console server that serves nobody.
    #[test]
    fn a_service_is_the_only_one_whatever_replaces_its_record() {
        let test = TestHost::with_domains();
        let domains = test.host.domains().expect("as root");
        let (path, own) = (test.domains().join(SERVICE), ProcessId::of(Pid::own()).expect("it lives"));
        let is_only = |told: &str| {
            assert_eq!(domains.service().expect(told), Some(own), "{told}");
            assert!(domains.lock_service().expect(told).is_none(), "{told}");
        };
        let service = domains.lock_service().expect("it is free").expect("nobody has it");
        is_only("its record");
        for content in ["", "1", "4194303@1", "\u{1b}[31m\nvtax: error"] {
            fs::remove_file(&path).expect("ours");
            is_only("no record");
            fs::write(&path, content).expect("ours");
            is_only(content);
        }
        let locked = test.host.store().lock().expect("it is free");
        domains.unlock_service(service, &locked).expect("ours");
        assert_eq!((domains.service().expect("none"), path.exists()), (None, false));
        assert!(domains.lock_service().expect("it is free").is_some());
    }

    #[test]
    fn a_process_listens_on_the_ports_of_its_own_sockets() {
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listening.local_addr().expect("it has one").port();
        assert!(listens(Pid::own(), port));
        assert!(!listens(Pid(1), port), "it is ours");
        drop(listening);
        assert!(!listens(Pid::own(), port));
    }
}
