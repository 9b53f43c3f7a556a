//! Signals from other threads to a migration.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// A switch that cancels a migration from another thread. Clones share it, and it can't be reset.
#[derive(Debug, Clone, Default)]
pub struct MigrationCancel(Arc<AtomicBool>);

impl MigrationCancel {
    /// Cancels the migration unless it has switched over.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns true if it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The last sign of progress of a source, for a target that can't see it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SourcePulse(Arc<Mutex<PulseState>>);

#[derive(Debug)]
struct PulseState {
    last: Duration,
    /// The file through which other processes learn of it, with the time of the last update.
    file: Option<(File, Duration)>,
}

impl Default for PulseState {
    fn default() -> PulseState {
        PulseState { last: now(), file: None }
    }
}

impl SourcePulse {
    /// The interval of updates for other processes.
    const TOLD_AGAIN: Duration = Duration::from_millis(500);

    /// Records that the source has made progress, or suspends the guest on purpose.
    pub fn beat(&self) {
        let mut state = self.state();
        state.last = now();
        let last = state.last;
        if let Some((file, told)) = &mut state.file
            && last.saturating_sub(*told) >= SourcePulse::TOLD_AGAIN
        {
            *told = last;
            // Without it, the others learn of this process when it is their turn to receive.
            let _ = file.write_all_at(&(last.as_millis() as u64).to_le_bytes(), 0);
        }
    }

    /// Shares it with other processes of this host, which receive other parts of the same guest.
    pub fn share(&self, path: &Path) -> io::Result<()> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        self.state().file = Some((file, Duration::ZERO));
        self.beat();
        Ok(())
    }

    /// Returns the time since the last sign.
    pub fn silent(&self) -> Duration {
        let state = self.state();
        let told = state.file.as_ref().and_then(|(file, _)| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 0).ok().map(|()| Duration::from_millis(u64::from_le_bytes(bytes)))
        });
        now().saturating_sub(told.map_or(state.last, |told| told.max(state.last)))
    }

    fn state(&self) -> MutexGuard<'_, PulseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time since the host's boot, which is the same in all processes.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_progress_reaches_all_who_share_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pulse");
        let (heard, silent) = (SourcePulse::default(), SourcePulse::default());
        let long = Duration::from_secs(60);
        [&heard, &silent].iter().for_each(|pulse| pulse.share(&path).expect("ours"));
        let ago = now().saturating_sub(long);
        [&heard, &silent].iter().for_each(|pulse| pulse.state().last = ago);
        let file = File::options().write(true).open(&path).expect("ours");
        file.write_all_at(&[0; 8], 0).expect("ours");
        assert!(heard.silent() >= long && silent.silent() >= long);
        heard.state().file.as_mut().expect("it is shared").1 = Duration::ZERO;
        heard.beat();
        assert!(heard.silent() < long && silent.silent() < long);
    }
}
