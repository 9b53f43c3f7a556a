//! Detection of inputs that never end or that exhaust the memory, which the target itself cannot report.

use std::{
    fs, process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{MEMORY_MOST, inputs::Corpus, trial::keep};

/// Wall-clock time that an input may take before the process is aborted.
const ENDLESS: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The current input and its start time.
type Current = Option<(Instant, Vec<u8>)>;

/// A thread that watches the current input.
pub(crate) struct InputWatch {
    current: Arc<Mutex<Current>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl InputWatch {
    pub(crate) fn start(corpus: &Corpus) -> InputWatch {
        let current = Arc::<Mutex<Current>>::default();
        let over = Arc::<AtomicBool>::default();
        let corpus = Corpus::of(&corpus.name, Vec::new());
        let (theirs, ended) = (current.clone(), over.clone());
        let look = move || {
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(LOOK_EVERY);
                look(&corpus, &theirs);
            }
        };
        let thread = thread::Builder::new().name("watch".into()).spawn(look).expect("a thread");
        InputWatch { current, over, thread: Some(thread) }
    }

    pub(crate) fn begin(&self, input: &[u8]) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), input.to_vec()));
    }
}

impl Drop for InputWatch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn look(corpus: &Corpus, current: &Mutex<Current>) {
    let current = current.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((since, input)) = &*current else { return };
    if let Some(fault) = fault(since.elapsed(), memory()) {
        eprintln!("{}: an input {fault}; it is in {}", corpus.name, keep(corpus, input).display());
        process::abort();
    }
}

fn fault(elapsed: Duration, memory: u64) -> Option<String> {
    match elapsed {
        long if long > ENDLESS => Some(format!("has taken {} seconds", long.as_secs())),
        _ if memory > MEMORY_MOST => Some(format!("took more than {MEMORY_MOST} bytes of memory")),
        _ => None,
    }
}

/// Returns the memory of this process in bytes: the second number of statm (proc(5)), in pages.
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_and_too_much_are_faults() {
        assert_eq!(fault(Duration::from_secs(3), memory()), None);
        assert!(fault(Duration::from_secs(61), 0).is_some_and(|fault| fault.contains("61 seconds")));
        assert!(fault(Duration::ZERO, MEMORY_MOST + 1).is_some_and(|fault| fault.contains("memory")));
        assert!(memory() > 1 << 20, "a test program takes more than a MiB");
    }
}
