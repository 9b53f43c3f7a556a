//! Fuzz targets for names of kernel objects, from files, arguments and the journal.

use std::{
    fmt::{Debug, Display},
    str::FromStr,
};

use vtax_model::cpus::CpuSet;

use crate::{
    netlink::{IfName, MacAddr},
    netns::NsId,
    pci::PciAddress,
    process::ProcessId,
    ssh,
    sysctl::SysctlKey,
};

#[track_caller]
fn survives<T: FromStr + Display + PartialEq + Debug>(text: &str) -> Option<()> {
    let read = text.parse::<T>().ok()?;
    let written = read.to_string();
    assert_eq!(written.parse().ok(), Some(read), "{text:?} is written as {written:?}");
    Some(())
}

#[test]
fn fuzz_kernel_names() {
    let seeds =
        ["0-3,8", "eth0", "02:00:5e:10:00:01", "4:4026531840", "0000:3b:00.1", "4242@17", "net.ipv4.ip_forward"];
    vtax_fuzz::fuzz_text("kernel-names", &seeds, |text| {
        let _ = ssh::server(text);
        let all = [
            survives::<CpuSet>(text),
            survives::<IfName>(text),
            survives::<MacAddr>(text),
            survives::<NsId>(text),
            survives::<PciAddress>(text),
            survives::<ProcessId>(text),
            survives::<SysctlKey>(text),
        ];
        all.into_iter().flatten().next()
    });
}
