//! vtax killed while a guest holds a function.

use super::{FAR, NEAR, NEAR_NAME, Server, function};

/// The function is there before, with settings of its own, so that there is more to put back than
/// their number.
pub(crate) fn killed(server: &Server) {
    server.make_vf();
    let before = server.inventory();
    let vf = function(&before, &format!("{NEAR_NAME}.VF0"))["function"]["device"].clone();
    let vf = vf.as_str().expect("an address");
    let vtax = env!("CARGO_BIN_EXE_vtax");
    let folder = server.bench().path().display();
    // The guest's QEMU has the device open once its group has a file in the process.
    server.shell(&format!(
        r#"cd {folder}
        export VTAX_STATE=/run/vtax-killed
        {vtax} run sparc-t7-1 --methods sr-iov --mtu 1500 --cable {NEAR},{FAR} >/run/killed.log 2>&1 &
        run=$!
        for i in $(seq 1200); do
            for process in /proc/[0-9]*; do
                ls -l $process/fd 2>/dev/null | grep -q /dev/vfio/[0-9] && break 2
            done
            kill -0 $run || {{ cat /run/killed.log >&2; exit 1; }}
            sleep 0.1
        done
        [ "$(basename $(readlink /sys/bus/pci/devices/{vf}/driver))" = vfio-pci ] || {{ echo not lent >&2; exit 1; }}
        kill -9 $run"#
    ));
    let cleaned = server.printed(&["lab", "clean"]);
    assert!(cleaned.contains("removed run-"), "{cleaned}");
    server.assert_as(&before);
    server.destroy_vf();
}
