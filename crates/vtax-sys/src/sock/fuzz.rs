//! Fuzz targets for the kernel's control messages and TCP information.

use super::{
    message::{ExtendedError, entries},
    tcp_info::TcpInfo,
    timestamping,
};

#[test]
fn fuzz_control_messages() {
    let message = |level: i32, kind: i32, data: &[u8]| {
        let mut bytes = (16 + data.len()).to_ne_bytes().to_vec();
        bytes.extend([level.to_ne_bytes(), kind.to_ne_bytes()].concat());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    let stamp = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &[1; 48]);
    let error = message(libc::SOL_IP, libc::IP_RECVERR, &[2; 16]);
    vtax_fuzz::fuzz("control-messages", &[[stamp.clone(), error].concat(), stamp], |bytes| {
        let found: usize = entries(bytes).map(|entry| entry.data.len() + 16).sum();
        assert!(found <= bytes.len());
        for entry in entries(bytes) {
            let _ = (ExtendedError::read(&entry), timestamping::read(entry.data));
        }
        let _ = TcpInfo::from_bytes(bytes);
        (found > 0).then_some(())
    });
}
