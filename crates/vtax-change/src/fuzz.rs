//! Fuzz target for the changes in a journal. They are parsed and printed but never applied, because some would change
//! this machine.

use vtax_fuzz::fuzz_text;

use crate::Change;

const SEEDS: [&str; 9] = [
    r#"{"change":"sysctl","key":"net/ipv4/tcp_rmem","value":"4096 131072 62914560","was":"4096\t131072\t6291456"}"#,
    r#"{"change":"sysfs","namespace":{"path":"/run/netns/a","id":"4:12","cookie":77},"path":"class/net/eth0/queues/rx-0/rps_cpus","link":"2","value":"c","was":"00,00000000"}"#,
    r#"{"change":"irq","irq":24,"used_for":"eth0-rx-0","value":"2","was":"0-3"}"#,
    r#"{"change":"mtu","link":{"index":2,"name":"eth0"},"value":9000,"was":1500}"#,
    r#"{"change":"driver","link":{"index":2,"name":"eth0"},"setting":"rx-usecs","value":3,"was":50}"#,
    r#"{"change":"kept","line":{"file":"sysctl","before":"net.core.rmem_max = ","value":"2","was":null},"keeps":{"change":"sysctl","key":"net/core/rmem_max","value":"2","was":"1","boot":"1-2"}}"#,
    r#"{"change":"cpuset-group","version":"v2","directory":"/sys/fs/cgroup/a/vtax-confined-7","cpus":"1","enables":true,"value":"present","was":"absent"}"#,
    r#"{"change":"thread-cpuset","hierarchy":{"version":"v1","mount":"/sys/fs/cgroup/cpuset"},"affinity":{"thread":"1@2/3@4","name":"IO 1"},"value":{"group":"/vtax-confined-7","cpus":"1"},"was":{"group":"/","cpus":"0-1"}}"#,
    r#"{"change":"thread","thread":"1@2/3@4","name":"CPU 0/KVM","value":"1","was":"0-3"}"#,
];

/// A parsed change prints as one line, and its JSON is parsed as the same change.
#[test]
fn fuzz_changes() {
    fuzz_text("changes", &SEEDS, |text| {
        let change: Change = serde_json::from_slice(text.as_bytes()).ok()?;
        let line = change.to_string();
        assert!(!line.contains(|character: char| character.is_control()), "{line:?}");
        assert!(line.starts_with(&change.name()) && line.contains(" -> "), "{line}");
        let written = serde_json::to_string(&change).expect("it was JSON before");
        assert_eq!(serde_json::from_slice::<Change>(written.as_bytes()).expect("it is our own"), change);
        Some(())
    });
}
