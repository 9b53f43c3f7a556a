//! Memory of the agent's guest that changes at a given rate, for measurements of live migration.
//!
//! It outlives the conversation that ordered it: when the guest has migrated, the next conversation is by the port of
//! another QEMU, and what is measured is the migration of a guest that keeps changing its memory.

use std::{
    fs, io,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use vtax_model::units::ByteSize;
use vtax_wire::protocol::MemoryLoad;

/// The unit in which a hypervisor notices changes.
const PAGE: u64 = 4096;
const WORDS_PER_PAGE: usize = PAGE as usize / size_of::<u64>();
/// Pause between two bursts of changes. A short one makes the rate even.
const TICK: Duration = Duration::from_millis(5);
/// Time that is made up for after a pause, e.g. because the guest got no CPU.
const CATCH_UP: Duration = Duration::from_millis(50);
/// Memory that is left to the guest's kernel and the agent.
const LEFT: u64 = 16 << 20;

/// Reasons why memory cannot be changed.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub(super) enum MemoryLoadError {
    #[error("cannot use {asked} of memory: {available} are available in this guest; use less, or a larger guest")]
    #[diagnostic(code("out-of-memory"))]
    TooMuch { asked: ByteSize, available: ByteSize },
    #[error("cannot start a thread that changes memory: {0}")]
    #[diagnostic(code("too-many-threads"))]
    Thread(io::Error),
}

/// The memory in use; its thread ends when this is dropped.
struct ChangingMemory {
    region: ByteSize,
    per_second: AtomicU64,
    words: Vec<AtomicU64>,
}

/// One for the whole guest, and so for all conversations.
static LOAD: Mutex<Option<Arc<ChangingMemory>>> = Mutex::new(None);

/// Changes memory at this rate from now on, in place of an earlier load. Returns when all of the region is in use.
pub(super) fn set(load: MemoryLoad) -> Result<(), MemoryLoadError> {
    let MemoryLoad { region, per_second } = load;
    let mut current = LOAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = current.as_ref().filter(|running| running.region == region) {
        running.per_second.store(per_second.0, Ordering::Relaxed);
        return Ok(());
    }
    // First, since there may be no room for both.
    *current = None;
    let available = available();
    if region.0 > available.0.saturating_sub(LEFT) {
        return Err(MemoryLoadError::TooMuch { asked: region, available });
    }
    // Each page has other contents, and none is zero: QEMU sends pages of zeros without their contents.
    let words = (1..=region.0 / size_of::<u64>() as u64).map(AtomicU64::new).collect();
    let memory = Arc::new(ChangingMemory { region, per_second: per_second.0.into(), words });
    let changed = Arc::downgrade(&memory);
    thread::Builder::new()
        .name("memory load".into())
        .spawn(move || change(&changed))
        .map_err(MemoryLoadError::Thread)?;
    *current = Some(memory);
    Ok(())
}

fn change(memory: &Weak<ChangingMemory>) {
    let (mut next, mut owed, mut before) = (0, 0, Instant::now());
    loop {
        thread::sleep(TICK);
        let Some(memory) = memory.upgrade() else { return };
        let passed = before.elapsed().min(CATCH_UP);
        before = Instant::now();
        owed +=
            u64::try_from(u128::from(memory.per_second.load(Ordering::Relaxed)) * passed.as_nanos() / 1_000_000_000)
                .unwrap_or(u64::MAX);
        for _ in 0..owed / PAGE {
            let Some(word) = memory.words.get(next) else { break };
            word.fetch_add(1, Ordering::Relaxed);
            next = (next + WORDS_PER_PAGE) % memory.words.len();
        }
        owed %= PAGE;
    }
}

/// Memory that programs can get without swapping; 0 if the kernel reports none.
fn available() -> ByteSize {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse().ok());
    ByteSize(kib.map_or(0, |kib: u64| kib.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed() -> u64 {
        let current = LOAD.lock().expect("sound");
        let words = &current.as_ref().expect("set").words;
        (1..).zip(words).map(|(first, word)| word.load(Ordering::Relaxed) - first).sum()
    }

    /// One test, because there is one load for the whole process.
    #[test]
    fn memory_changes_at_the_rate_until_it_is_replaced() {
        let huge = MemoryLoad { region: ByteSize(1 << 60), per_second: ByteSize(1) };
        assert!(matches!(set(huge), Err(MemoryLoadError::TooMuch { .. })));
        let (region, fast) = (ByteSize(1 << 20), ByteSize(20 << 20));
        set(MemoryLoad { region, per_second: fast }).expect("room");
        let begun = Instant::now();
        while changed() < 256 {
            assert!(begun.elapsed() < Duration::from_secs(60), "a page of 4 KiB each 0.2 ms");
            thread::sleep(TICK);
        }
        assert!(begun.elapsed() >= Duration::from_millis(40), "256 pages take 50 ms: {:?}", begun.elapsed());
        set(MemoryLoad { region, per_second: ByteSize(0) }).expect("the same memory");
        // A burst that has begun may continue for a moment.
        thread::sleep(4 * TICK);
        let then = changed();
        thread::sleep(10 * TICK);
        assert_eq!(changed(), then);
        let before = Arc::downgrade(LOAD.lock().expect("sound").as_ref().expect("set"));
        set(MemoryLoad { region: ByteSize(2 << 20), per_second: ByteSize(0) }).expect("room");
        let begun = Instant::now();
        while before.upgrade().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(60), "its memory is freed");
            thread::sleep(TICK);
        }
    }
}
