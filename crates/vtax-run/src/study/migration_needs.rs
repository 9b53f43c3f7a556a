//! Requirements of a study of migrations on this machine.

use std::collections::BTreeSet;

use miette::miette;
use vtax_guest::userfaultfd;
use vtax_lab::Facts;
use vtax_model::{
    method::Unsupported,
    study::{MigrationWay, Row, Study},
    units::ByteSize,
};

/// Module that drives the NIC of the project's own guests. These guests have no NIC, but share the image this way.
pub(super) const DRIVER: &str = "virtio_net";

/// Returns why a row of a study of migrations can't run here.
pub(super) fn unsupported(study: &Study, row: Row, facts: &Facts) -> Option<Unsupported> {
    let guests = match &facts.guests {
        Some(guests) => guests,
        None => return Some(Unsupported::new("nothing is known of guests here", "report this as a defect")),
    };
    let boots = guests.qemu.as_ref().map(drop).map_err(Clone::clone);
    let boots = boots.and_then(|()| guests.boot(&study.guest.system, DRIVER).map(drop));
    if let Err(unsupported) = boots {
        return Some(unsupported);
    }
    let Row::Migration(way) = row else { return None };
    let has_userfaultfd = || guests.qemu.as_ref().is_ok_and(|qemu| userfaultfd::is_available(&qemu.program));
    lacks_cores(way, guests.cpus.len()).or_else(|| refuses_post_copy(way, has_userfaultfd))
}

fn lacks_cores(way: MigrationWay, has: usize) -> Option<Unsupported> {
    let cores = way.cores.filter(|cores| has < usize::from(cores.get()))?;
    let why = format!("this machine has {has} CPUs, and the row confines QEMU's threads to {cores}");
    Some(Unsupported { why, remedy: "use a machine with more CPUs".to_owned() })
}

/// QEMU runs without privilege, and also fetches a page when the guest's kernel touches it.
fn refuses_post_copy(way: MigrationWay, has_userfaultfd: impl FnOnce() -> bool) -> Option<Unsupported> {
    (way.post_copy && !has_userfaultfd()).then(|| {
        Unsupported::new(
            "QEMU's user may not use userfaultfd, with which a target fetches pages",
            "run as root with QEMU 8.0 and Linux 6.1 or newer, or allow it to every user of this machine (sysctl \
             vm.unprivileged_userfaultfd=1)",
        )
    })
}

/// Checks memory: all guests run at the same time, and one of them has a second QEMU.
pub(super) fn check_room(sizes: &[ByteSize], available: ByteSize) -> miette::Result<()> {
    let distinct: BTreeSet<u64> = sizes.iter().map(|size| size.0).collect();
    let needed = distinct.iter().chain(distinct.last()).fold(0, |sum: u64, size| sum.saturating_add(*size));
    let mib = |bytes: u64| ByteSize(bytes >> 20 << 20);
    match needed <= available.0 {
        true => Ok(()),
        false => Err(miette!(
            code = "not-enough-memory",
            "the guests of this study take {}, and {} are available; use --quick, or a study file with less `memory`",
            mib(needed),
            mib(available.0)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(text: &str) -> MigrationWay {
        text.parse().expect("a way")
    }

    #[test]
    fn room_is_for_all_guests_and_a_second_one() {
        let gib = |count: u64| ByteSize(count << 30);
        let sizes = [gib(1), gib(1), gib(4)];
        assert!(check_room(&sizes, gib(9)).is_ok());
        let refused = check_room(&sizes, gib(8)).expect_err("one short").to_string();
        assert!(refused.contains("take 9 GiB, and 8 GiB are available"), "{refused}");
    }

    #[test]
    fn a_row_needs_its_cores_and_post_copy_userfaultfd() {
        assert_eq!(lacks_cores(way("tls,cores=2"), 2), None);
        assert!(lacks_cores(way("tls,cores=3"), 2).is_some_and(|lack| lack.why.contains("2 CPUs")));
        for (text, is_available, refused) in
            [("tls,post-copy", false, true), ("tls,post-copy", true, false), ("tls", false, false)]
        {
            assert_eq!(refuses_post_copy(way(text), || is_available).is_some(), refused, "{text} {is_available}");
        }
    }
}
