//! Progress of a migration: one line of a terminal.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vtax_domain::MigrationProgress;
use vtax_guest::{
    migration::DiskProgress,
    qmp::{MigrationRam, MigrationStatus},
};
use vtax_model::foreign::visible;

use crate::terminal::{Voice, size, voice};

/// A line that is redrawn continuously. Without a terminal, nothing is drawn.
#[derive(Clone)]
pub(super) struct ProgressLine(Option<ProgressBar>);

impl ProgressLine {
    pub(super) fn of_terminal() -> ProgressLine {
        let is_drawn = voice() != Voice::Quiet && stderr().is_terminal();
        let bar = || {
            let style = ProgressStyle::with_template("{msg}").expect("a constant template");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
        };
        ProgressLine(is_drawn.then(bar))
    }

    pub(super) fn show(&self, progress: MigrationProgress<'_>) {
        if let Some(bar) = &self.0 {
            let width = size(stderr()).columns;
            let line = match progress {
                MigrationProgress::Disks(progress) => disks(progress),
                MigrationProgress::Memory(info) => line(info.status, info.ram.as_ref(), info.cpu_throttle_percentage),
            };
            bar.set_message(visible(&line).chars().take(width).collect::<String>());
        }
    }

    /// Prints something above the line.
    pub(super) fn above(&self, print: impl FnOnce()) {
        match &self.0 {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Removes the line.
    pub(super) fn end(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

fn disks(progress: DiskProgress) -> String {
    let DiskProgress { copied, total } = progress;
    let percent = copied.0.saturating_mul(100).checked_div(total.0).unwrap_or_default();
    format!("disks: {} of {} MiB copied, {percent} %; memory follows", copied.0 >> 20, total.0 >> 20)
}

fn line(status: MigrationStatus, ram: Option<&MigrationRam>, throttle: Option<u32>) -> String {
    match (status, ram) {
        (MigrationStatus::Active, Some(ram)) => memory(ram, throttle),
        (MigrationStatus::PreSwitchover | MigrationStatus::Device | MigrationStatus::Completed, _) => {
            "switching over".to_owned()
        }
        _ => "connecting".to_owned(),
    }
}

fn memory(ram: &MigrationRam, throttle: Option<u32>) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let (sent, left, pass) = (mib(ram.transferred), mib(ram.remaining), ram.dirty_sync_count.max(1));
    let mut line = format!("memory, pass {pass}: {sent} MiB sent, {left} MiB left, {:.0} Mbit/s", ram.mbps);
    if ram.dirty_pages_rate > 0 {
        line += &format!("; the domain changes {} MiB/s", mib(ram.dirty_rate().0));
    }
    if let Some(percent) = throttle.filter(|percent| *percent > 0) {
        line += &format!("; its CPUs are slowed down by {percent} %");
    }
    line
}

#[cfg(test)]
mod tests {
    use vtax_model::units::ByteSize;

    use super::*;

    #[test]
    fn only_what_is_known_is_shown() {
        let ram = |dirty_pages_rate| MigrationRam {
            transferred: 412 << 20,
            remaining: 100 << 20,
            dirty_pages_rate,
            page_size: 4096,
            mbps: 850.4,
            dirty_sync_count: 2,
            ..MigrationRam::default()
        };
        let sent = "memory, pass 2: 412 MiB sent, 100 MiB left, 850 Mbit/s";
        assert_eq!(line(MigrationStatus::Active, Some(&ram(0)), None), sent);
        let changing = format!("{sent}; the domain changes 86 MiB/s; its CPUs are slowed down by 20 %");
        assert_eq!(line(MigrationStatus::Active, Some(&ram(86 << 8)), Some(20)), changing);
        assert_eq!(line(MigrationStatus::Setup, None, None), "connecting");
        let copied = |copied, total| disks(DiskProgress { copied: ByteSize(copied), total: ByteSize(total) });
        assert_eq!(copied(1 << 30, 4 << 30), "disks: 1024 of 4096 MiB copied, 25 %; memory follows");
        assert_eq!(copied(0, 0), "disks: 0 of 0 MiB copied, 0 %; memory follows");
        assert_eq!(line(MigrationStatus::PreSwitchover, Some(&ram(0)), None), "switching over");
    }
}
