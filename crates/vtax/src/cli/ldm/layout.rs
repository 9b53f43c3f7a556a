//! Domain lists with `ldm`'s column layout, since scripts cut them by column.

use std::{fmt::Write, time::Duration};

use vtax_domain::{ConsolePlace, DomainRow, ServiceUtilization};
use vtax_model::units::ByteSize;

/// Prints one line per domain.
pub(super) fn domains(rows: &[DomainRow]) -> String {
    let mut text = line(["NAME", "STATE", "FLAGS", "CONS", "VCPU", "MEMORY", "UTIL", "UPTIME"]);
    rows.iter().for_each(|row| text += &domain(row));
    text
}

fn domain(row: &DomainRow) -> String {
    let shown = |count: u32| if count == 0 { String::new() } else { count.to_string() };
    let memory = if row.memory.0 == 0 { String::new() } else { memory(row.memory) };
    line([
        row.name.as_str(),
        row.state.into(),
        &row.flags.to_string(),
        &console(row.console),
        &shown(row.vcpus),
        &memory,
        &row.utilization.map(utilization).unwrap_or_default(),
        &row.uptime.map(uptime).unwrap_or_default(),
    ])
}

fn line(cells: [&str; 8]) -> String {
    let [name, state, flags, cons, vcpu, memory, util, uptime] = cells;
    format!("{name:<16} {state:<10} {flags:<7} {cons:<7} {vcpu:<5} {memory:<8} {util:<5} {uptime}\n")
}

/// Returns a block of `ldm`'s lists: its name, headings, and a line for each resource; empty without resources.
pub(super) fn block<const N: usize>(
    name: &str,
    columns: [(&str, usize); N],
    lines: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut lines = lines.into_iter().peekable();
    if lines.peek().is_none() { String::new() } else { whole_block(name, columns, lines) }
}

/// Columns of the CPU time that the host spends on behalf of a domain.
pub(super) const HOST_CPU: [(&str, usize); 5] =
    [("VHOST", 9), ("IOTHREAD", 9), ("DAEMON", 9), ("QEMU", 9), ("TOTAL", 0)];

/// Returns this time, in percent of one CPU.
pub(super) fn host_cpu(of: &ServiceUtilization) -> [String; 5] {
    let ServiceUtilization { vhost, iothread, daemon, qemu } = *of;
    [vhost, iothread, daemon, qemu, of.total()].map(|share| format!("{share:.1}%"))
}

/// Returns the same for programs.
pub(super) fn parseable_host_cpu(of: &ServiceUtilization) -> String {
    let ServiceUtilization { vhost, iothread, daemon, qemu } = of;
    format!("vhost={vhost:.1}|iothread={iothread:.1}|daemon={daemon:.1}|qemu={qemu:.1}")
}

/// Returns a block that has its headings without resources, too. Cells are as wide as in `ldm`.
pub(super) fn whole_block<const N: usize>(
    name: &str,
    columns: [(&str, usize); N],
    lines: impl IntoIterator<Item = [String; N]>,
) -> String {
    let line = |cells: [String; N]| {
        let padded = cells.iter().zip(columns).map(|(cell, (_, width))| format!("{cell:<width$} "));
        format!("    {}\n", padded.collect::<String>().trim_end())
    };
    let heads = columns.map(|(head, _)| head.to_owned());
    let lines: String = std::iter::once(heads).chain(lines).map(line).collect();
    format!("{name}\n{lines}\n")
}

/// Prints one line per domain, for programs.
pub(super) fn parseable_domains(rows: &[DomainRow]) -> String {
    let mut text = parseable_head();
    for row in rows {
        text += &parseable_domain(row, &row.flags.to_string());
    }
    text
}

/// First line of all parseable output.
pub(super) fn parseable_head() -> String {
    "VERSION 1.11\n".to_owned()
}

/// Returns the line of a domain; flags are letters, or words in long output.
pub(super) fn parseable_domain(row: &DomainRow, flags: &str) -> String {
    let mut text = String::new();
    let percent = |share: Option<f64>| share.map(|share| format!("{share:.1}")).unwrap_or_default();
    let _ = writeln!(
        text,
        "DOMAIN|name={}|state={}|flags={flags}|cons={}|ncpu={}|mem={}|util={}|uptime={}|norm_util={}",
        row.name,
        row.state,
        console(row.console),
        row.vcpus,
        row.memory.0,
        percent(row.utilization),
        row.uptime.map(|uptime| uptime.as_secs().to_string()).unwrap_or_default(),
        percent(row.utilization),
    );
    text
}

fn console(place: Option<ConsolePlace>) -> String {
    match place {
        None => String::new(),
        Some(ConsolePlace::Uart) => "UART".to_owned(),
        Some(ConsolePlace::Port(port)) => port.to_string(),
    }
}

/// Returns the size in the largest unit that makes it a whole number.
pub(super) fn memory(size: ByteSize) -> String {
    let units = [("G", 30), ("M", 20), ("K", 10)];
    let exact = units.iter().find(|(_, shift)| size.0 > 0 && size.0.is_multiple_of(1 << shift));
    exact.map_or(size.0.to_string(), |(unit, shift)| format!("{}{unit}", size.0 >> shift))
}

fn utilization(percent: f64) -> String {
    if percent >= 99.95 { format!("{percent:.0}%") } else { format!("{percent:.1}%") }
}

/// Returns days, hours and minutes without zero parts, or seconds if less than a minute.
pub(super) fn uptime(time: Duration) -> String {
    let seconds = time.as_secs();
    let parts = [(seconds / 86_400, 'd'), (seconds / 3_600 % 24, 'h'), (seconds / 60 % 60, 'm')];
    let shown: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if shown.is_empty() { format!("{seconds}s") } else { shown.join(" ") }
}

#[cfg(test)]
mod tests {
    use vtax_domain::{DomainFlags, RunningSystem};
    use vtax_model::domain::DomainState;

    use super::*;

    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;

    fn row(name: &str, state: DomainState, console: Option<ConsolePlace>, vcpus: u32, memory: &str) -> DomainRow {
        DomainRow {
            name: name.parse().expect("a name"),
            state,
            flags: DomainFlags::default(),
            console,
            vcpus,
            memory: memory.parse().expect("a size"),
            utilization: None,
            service: None,
            uptime: None,
        }
    }

    fn running(row: DomainRow, utilization: f64, uptime: u64) -> DomainRow {
        let flags = DomainFlags { running: Some(RunningSystem::Normal), ..row.flags };
        let (utilization, uptime) = (Some(utilization), Some(Duration::from_secs(uptime)));
        DomainRow { flags, utilization, uptime, ..row }
    }

    /// Domains of the article on consoles, in another order.
    fn planets() -> Vec<DomainRow> {
        let port = |port| Some(ConsolePlace::Port(port));
        let mut primary = row("primary", DomainState::Active, Some(ConsolePlace::Uart), 16, "7680M");
        primary.flags = DomainFlags { control: true, service: true, ..DomainFlags::default() };
        let mut rows = vec![
            row("pluto", DomainState::Inactive, None, 4, "4G"),
            running(row("venus", DomainState::Active, port(5001), 2, "8G"), 0.5, 56 * DAY + 40 * MINUTE),
            running(row("mars", DomainState::Active, port(5000), 2, "8G"), 0.5, 55 * DAY + 14 * HOUR + 10 * MINUTE),
            running(primary, 0.4, 27 * DAY + 8 * HOUR + 22 * MINUTE),
            row("jupiter", DomainState::Bound, port(5002), 20, "8G"),
        ];
        DomainRow::sort(&mut rows);
        rows
    }

    /// Columns exactly as in an article of 2012.
    #[test]
    fn a_list_has_the_columns_of_ldm() {
        let shown = "\
NAME             STATE      FLAGS   CONS    VCPU  MEMORY   UTIL  UPTIME
primary          active     -n-cv-  UART    16    7680M    0.4%  27d 8h 22m
jupiter          bound      ------  5002    20    8G             
mars             active     -n----  5000    2     8G       0.5%  55d 14h 10m
venus            active     -n----  5001    2     8G       0.5%  56d 40m
pluto            inactive   ------          4     4G             
";
        assert_eq!(domains(&planets()), shown);
        let head = shown.lines().next().expect("a head");
        let columns = ["NAME", "STATE", "FLAGS", "CONS", "VCPU", "MEMORY", "UTIL", "UPTIME"].map(|it| head.find(it));
        assert_eq!(columns.map(Option::unwrap_or_default), [0, 17, 28, 36, 44, 50, 59, 65]);
    }

    #[test]
    fn a_list_for_programs_has_the_fields_of_ldm() {
        let text = parseable_domains(&planets());
        let primary = text.lines().nth(1).expect("primary");
        assert!(primary.starts_with("DOMAIN|name=primary|state=active|flags=-n-cv-|cons=UART|ncpu=16|mem=8053063680|"));
        assert!(primary.ends_with("|util=0.4|uptime=2362920|norm_util=0.4"), "{primary}");
    }

    #[test]
    fn times_and_sizes_are_as_short_as_they_can_be() {
        let times = [0, 59, MINUTE, 30 * MINUTE + 5, HOUR, DAY, DAY + MINUTE];
        let shown = times.map(|seconds| uptime(Duration::from_secs(seconds)));
        assert_eq!(shown, ["0s", "59s", "1m", "30m", "1h", "1d", "1d 1m"]);
        let sizes = ["7680M", "8G", "96M", "100K", "5000"].map(|text| memory(text.parse().expect("a size")));
        assert_eq!(sizes, ["7680M", "8G", "96M", "100K", "5000"]);
    }
}
