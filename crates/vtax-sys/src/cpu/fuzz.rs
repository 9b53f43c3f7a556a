//! Fuzz targets for the CPU times in `/proc`.

use vtax_model::cpus::CpuSet;

use super::{machine, task};
use crate::process::stat_field;

#[test]
fn fuzz_cpu_texts() {
    let seeds = [
        "cpu  600100 250 74608 10072412 1200 0 4101 77 500000 200\nintr 1\n",
        "4242 (a) S) S 1 4242 4242 0 -1 4194304 112 0 0 0 5 6 0 0 20 0 1 0 987654 3133440 195 1",
        "123 456 789\n",
        "0-3,8,10-11",
    ];
    vtax_fuzz::fuzz("cpu-texts", &seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let machine = machine::parse(&text, 100);
        let times = machine.map(|times| assert_eq!(times.since(times), Default::default()));
        let task = task::parse(bytes, 100).map(|_| ());
        let _ = (machine::parse_interrupts(&text), stat_field(bytes, 22));
        let set = text.parse::<CpuSet>().ok();
        if let Some(set) = &set {
            assert_eq!(set.to_string().parse::<CpuSet>().ok().as_ref(), Some(set));
        }
        times.or(task).or(task::run(&text).map(|_| ())).or(set.map(|_| ()))
    });
}
