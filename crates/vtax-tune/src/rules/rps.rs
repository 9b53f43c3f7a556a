//! Receive packet steering and receive flow steering.

use vtax_host::inspect::{HostLink, InterruptCpus};
use vtax_model::{cpus::CpuSet, foreign::ForeignText};

use super::interrupt_spread::local;
use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{CPUS, LINKS, NODES, QUEUES, TICKS},
    rule::{ChangeRisk, TuningRule},
    setting::{HostSetting, Proposal},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "rps",
    title: "receive packet steering",
    reads: "/sys/class/net/LINK/queues/rx-N/rps_cpus and rps_flow_cnt, net.core.rps_sock_flow_entries",
    needs: &[QUEUES, CPUS, NODES, LINKS, TICKS, &["/proc/sys/net/core/rps_sock_flow_entries"]],
    good: "Off if there is a queue for each CPU of the NIC's node. Otherwise on, over the CPUs of that node. For RFS, \
           32768 in rps_sock_flow_entries, and 32768 divided by the number of queues in each rps_flow_cnt.",
    why: "Steering forwards each packet from the CPU of the interrupt to another one, which costs an inter-processor \
          interrupt. This pays off if one CPU cannot handle all packets, and reduces performance otherwise.",
    risk: ChangeRisk::Medium,
    risks: "More load on the target CPUs; a stream's packets move once, so that a few may be reordered.",
    goal: TuningGoal::Both,
    persists: "Lost when the link is removed. Use a udev rule; `--persist` writes one for a NIC, and a file in \
               /etc/sysctl.d for rps_sock_flow_entries.",
    source: "Linux: Documentation/networking/scaling.rst, \"RPS\" and \"RFS\"",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    if case.host.topology.online.len() < 2 {
        return vec![RuleOutcome::NotHere("one CPU".to_owned())];
    }
    let steering = case.links().filter(|link| link.rx_queues.iter().any(|queue| !queue.rps_cpus.is_empty()));
    let mut outcomes: Vec<RuleOutcome> = steering.map(|link| of_link(case, link)).collect();
    outcomes.extend(flows(case));
    outcomes.extend(case.ports().filter_map(|link| saturated(case, link)));
    if outcomes.is_empty() {
        outcomes.push(RuleOutcome::Good("off on all links".to_owned()));
    }
    outcomes
}

/// Checks a link with steering.
fn of_link(case: &TuningCase<'_>, link: &HostLink) -> RuleOutcome {
    let to: CpuSet = link.rx_queues.iter().flat_map(|queue| queue.rps_cpus.iter()).collect();
    let local = local(case, link);
    let away: CpuSet = to.iter().filter(|cpu| !local.contains(*cpu)).collect();
    let seen = format!("{} queue{} steer packets to CPUs {to}", link.rx_queues.len(), plural(link.rx_queues.len()));
    let finding = |seen: String, because: &str| TuningFinding::new(link.name.clone(), seen, because);
    if to.len() == 1 {
        let because = "All packets go to one CPU through an inter-processor interrupt, and no load is spread.";
        return finding(seen, because).gain(ExpectedGain::Medium).change(all_queues(link, &CpuSet::default()));
    }
    if local.is_empty() {
        return RuleOutcome::Good(format!("{}: {seen}; all CPUs are isolated", link.name));
    }
    if link.device.is_some() && link.rx_queues.len() >= local.len() {
        let seen = format!("{seen}, although there is a queue for each of the {} CPUs", local.len());
        return finding(seen, RULE.why).gain(ExpectedGain::Small).change(all_queues(link, &CpuSet::default()));
    }
    if !away.is_empty() {
        let seen = format!("{seen}; {away} are on a NUMA node other than the NIC's, or isolated");
        return finding(seen, RULE.why).gain(ExpectedGain::Medium).change(all_queues(link, &local));
    }
    RuleOutcome::Good(format!("{}: {seen}", link.name))
}

fn all_queues(link: &HostLink, to: &CpuSet) -> Vec<Proposal> {
    let queue = |(number, queue): (usize, &vtax_host::inspect::RxQueue)| {
        let setting = HostSetting::of_link(&link.name, &format!("queues/rx-{number}/rps_cpus"), mask(to));
        (queue.rps_cpus != *to).then(|| setting.instead_of(mask(&queue.rps_cpus)))
    };
    link.rx_queues.iter().enumerate().filter_map(queue).collect()
}

/// Returns a mask in the kernel's format: 32-bit words in hexadecimal, the highest first.
pub(super) fn mask(cpus: &CpuSet) -> String {
    let words = cpus.iter().last().map_or(1, |last| last as usize / 32 + 1);
    let mut bits = vec![0u32; words];
    cpus.iter().for_each(|cpu| bits[cpu as usize / 32] |= 1 << (cpu % 32));
    let (highest, lower) = bits.split_last().expect("at least one word");
    let mut text = format!("{highest:x}");
    lower.iter().rev().for_each(|word| text.push_str(&format!(",{word:08x}")));
    text
}

/// Checks flow steering, which requires a global table and one per queue.
fn flows(case: &TuningCase<'_>) -> Option<RuleOutcome> {
    let wants = |link: &&HostLink| link.rx_queues.iter().any(|queue| queue.rps_flow_cnt > 0);
    let link = case.links().find(wants)?;
    let entries = case.host.sysctl("net.core.rps_sock_flow_entries")?;
    if entries != "0" {
        return Some(RuleOutcome::Good(format!("flow steering has {entries} entries")));
    }
    let seen = format!("rps_flow_cnt of {} is set, but rps_sock_flow_entries is 0", link.name);
    let finding = TuningFinding::new(
        ForeignText::from("net.core.rps_sock_flow_entries"),
        seen,
        "Flow steering is off: it requires both tables.",
    );
    Some(finding.change([HostSetting::sysctl("net.core.rps_sock_flow_entries", 32768).instead_of("0")]))
}

/// Share of a CPU's time for received packets above which nothing remains for other work.
const FULL: f64 = 0.9;
/// Busy share of a CPU below which the CPU could help.
const IDLE: f64 = 0.5;

/// Checks a NIC with fewer queues than CPUs for a saturated CPU.
fn saturated(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let observed = case.observed?;
    let local = local(case, link);
    if link.rx_queues.len() >= local.len() || link.rx_queues.iter().any(|queue| !queue.rps_cpus.is_empty()) {
        return None;
    }
    let shares = observed.cpu_shares(case.host);
    let serves = |cpu: u32| {
        case.host.interrupts_of(link).any(|interrupt| match case.handlers(interrupt) {
            InterruptCpus::Now(cpus) | InterruptCpus::Past(cpus) => cpus.contains(cpu),
            InterruptCpus::Unknown => interrupt.affinity.contains(cpu),
        })
    };
    let (cpu, share) = shares.iter().find(|(cpu, share)| serves(**cpu) && share.softirq > FULL)?;
    let helpers: CpuSet =
        local.iter().filter(|other| other != cpu && shares.get(other).is_some_and(|share| share.busy < IDLE)).collect();
    if helpers.is_empty() {
        return None;
    }
    let seen = format!(
        "CPU {cpu} spent {:.0} % of {:.0} s on received packets; CPUs {helpers} were less than half busy; the NIC has \
         {} queue{} for {} CPUs",
        share.softirq * 100.0,
        observed.seconds,
        link.rx_queues.len(),
        plural(link.rx_queues.len()),
        local.len()
    );
    let finding = TuningFinding::new(link.name.clone(), seen, "One CPU cannot handle all packets.");
    Some(finding.gain(ExpectedGain::Large).change(all_queues(link, &helpers)))
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_the_kernel_reads_them() {
        for (cpus, text) in [("", "0"), ("0-3", "f"), ("1,32,63", "80000001,00000002"), ("64", "1,00000000,00000000")] {
            assert_eq!(mask(&cpus.parse().expect("CPUs")), text);
        }
    }
}
