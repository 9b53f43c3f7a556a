//! Commands for disk backends: exports over NBD, and copies (block jobs).

use serde::Deserialize;
use serde_json::{Value, json};
use vtax_model::{foreign::ForeignText, units::ByteSize};

use super::Monitor;
use crate::error::GuestError;

/// Bursts per second of a copy with limited bandwidth.
const BURSTS: u64 = 4;
/// Bytes of a copy in flight: at least QEMU's copy unit, and at most its default.
const SMALLEST_BUFFER: u64 = 64 << 10;
const LARGEST_BUFFER: u64 = 16 << 20;

/// A block job (`query-jobs`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockJob {
    pub id: String,
    pub status: JobStatus,
    /// Bytes done. Together with the total this is the progress, but the total grows as the guest writes.
    pub current_progress: u64,
    pub total_progress: u64,
    /// QEMU's reason for a failure.
    #[serde(default)]
    pub error: Option<ForeignText>,
}

/// State of a job, as far as relevant here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// Everything is copied and stays in sync.
    Ready,
    /// As ready, while the guest's processors are being stopped.
    Standby,
    /// It has ended, successfully or not, and waits to be dismissed.
    Concluded,
    #[serde(other)]
    Other,
}

impl Monitor {
    /// Starts an NBD server on a listening socket passed earlier ([`Monitor::give_file`]). If an object is named,
    /// clients need its key ([`Monitor::add_tls_key`]).
    pub fn start_nbd_server(&mut self, listener: &str, tls_creds: Option<&str>) -> Result<(), GuestError> {
        let mut server = json!({ "addr": { "type": "fd", "data": { "str": listener } } });
        if let Some(object) = tls_creds {
            server["tls-creds"] = object.into();
        }
        self.command("nbd-server-start", server)
    }

    /// Ends the NBD server with its connections and exports.
    pub fn stop_nbd_server(&mut self) -> Result<(), GuestError> {
        self.command("nbd-server-stop", json!({}))
    }

    /// Exports a disk's backend on the NBD server.
    pub fn export_blocks(&mut self, node: &str, name: &str, writable: bool) -> Result<(), GuestError> {
        let export = json!({ "type": "nbd", "id": name, "node-name": node, "name": name, "writable": writable });
        self.command("block-export-add", export)
    }

    /// Starts mirroring a disk's backend to a node. Each write of the guest goes to both and waits for both. The job
    /// has the target's name.
    pub fn mirror_blocks(&mut self, node: &str, target: &str, limit: Option<ByteSize>) -> Result<(), GuestError> {
        let mut job = json!({
            "job-id": target,
            "device": node,
            "target": target,
            "sync": "full",
            "copy-mode": "write-blocking",
            "auto-dismiss": false,
        });
        if let Some(ByteSize(per_second)) = limit {
            // QEMU sends as much as its buffer holds, and then pauses until the average is below the limit.
            job["speed"] = per_second.into();
            job["buf-size"] = (per_second / BURSTS).clamp(SMALLEST_BUFFER, LARGEST_BUFFER).into();
        }
        self.command("blockdev-mirror", job)
    }

    /// All block jobs, including ended ones that weren't dismissed.
    pub fn block_jobs(&mut self) -> Result<Vec<BlockJob>, GuestError> {
        self.query("query-jobs")
    }

    /// Ends a job. A mirror that is ready completes its copy first, unless forced.
    pub fn end_block_job(&mut self, id: &str, force: bool) -> Result<(), GuestError> {
        self.command("block-job-cancel", json!({ "device": id, "force": force }))
    }

    /// Forgets a job that has concluded.
    pub fn dismiss_job(&mut self, id: &str) -> Result<(), GuestError> {
        self.command("job-dismiss", json!({ "id": id }))
    }

    /// Sends the command that connects a node to an NBD server at a socket in QEMU's directory. The answer arrives
    /// after the handshake, so the server of the socket must perform it in the meantime ([`Monitor::blocks_added`]).
    pub(crate) fn begin_nbd_client(
        &mut self,
        node: &str,
        socket: &str,
        export: &str,
        tls_creds: Option<&str>,
    ) -> Result<(), GuestError> {
        let mut blocks = json!({
            "driver": "nbd",
            "node-name": node,
            // Blocks without data take no space on the other side.
            "discard": "unmap",
            "server": { "type": "unix", "path": socket },
            "export": export,
        });
        if let Some(object) = tls_creds {
            blocks["tls-creds"] = object.into();
        }
        self.begin("blockdev-add", &blocks)
    }

    /// Waits for the answer to [`Monitor::begin_nbd_client`].
    pub(crate) fn blocks_added(&mut self) -> Result<(), GuestError> {
        self.end::<Value>("blockdev-add").map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_job_states_are_accepted() {
        let job = |status: &str| {
            let text = json!({ "id": "copy0", "type": "mirror", "status": status, "current-progress": 1, "total-progress": 2 });
            serde_json::from_value::<BlockJob>(text).expect("a job").status
        };
        let known = ["ready", "standby", "concluded", "running", "aborting"].map(job);
        let expected = [JobStatus::Ready, JobStatus::Standby, JobStatus::Concluded, JobStatus::Other, JobStatus::Other];
        assert_eq!(known, expected);
    }
}
