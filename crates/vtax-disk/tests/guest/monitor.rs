//! QEMU's monitor, as far as the disks of tests require it.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use serde_json::{Value, json};

pub(crate) struct RawMonitor(BufReader<UnixStream>);

impl RawMonitor {
    pub(crate) fn open(socket: &Path) -> RawMonitor {
        let stream = UnixStream::connect(socket).expect("QEMU listens");
        stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a socket");
        let mut monitor = RawMonitor(BufReader::new(stream));
        monitor.line();
        monitor.ask("qmp_capabilities", json!({}));
        monitor
    }

    /// Plugs a virtio disk on a file into the guest, optionally with an IOPS limit.
    pub(crate) fn plug_file(&mut self, file: &Path, limit: Option<u64>) {
        let cache = json!({ "direct": true });
        let file = json!({ "driver": "file", "filename": file, "cache": cache });
        self.ask("blockdev-add", json!({ "driver": "raw", "node-name": "disk", "file": file, "cache": cache }));
        let node = match limit {
            None => "disk",
            Some(limit) => {
                let limits = json!({ "iops-total": limit });
                self.ask("object-add", json!({ "qom-type": "throttle-group", "id": "group", "limits": limits }));
                let limited =
                    json!({ "driver": "throttle", "node-name": "limited", "throttle-group": "group", "file": "disk" });
                self.ask("blockdev-add", limited);
                "limited"
            }
        };
        self.ask("device_add", json!({ "driver": "virtio-blk-pci", "bus": "spare0", "drive": node }));
    }

    fn ask(&mut self, command: &str, arguments: Value) {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{line}").expect("QEMU listens");
        loop {
            let answer = self.line();
            assert!(answer["error"].is_null(), "{line}: {answer}");
            if !answer["return"].is_null() {
                return;
            }
        }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("QEMU answers");
        serde_json::from_str(&line).expect("JSON")
    }
}
