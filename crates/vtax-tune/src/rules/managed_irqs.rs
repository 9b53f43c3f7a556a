//! Interrupts whose CPUs only the kernel chooses.

use vtax_host::inspect::HostLink;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::{INTERRUPTS, LINKS, MANAGED},
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "managed-irqs",
    title: "interrupts that cannot be moved",
    reads: "a write to /proc/irq/N/smp_affinity_list returns EIO; root sees it in /sys/kernel/debug/irq/irqs/N",
    needs: &[MANAGED, INTERRUPTS, LINKS],
    good: "Nothing to do: the kernel spread them over all CPUs when the driver started.",
    why: "Some drivers let the kernel choose the CPUs of their interrupts (IRQF_AFFINITY_MANAGED). They cannot be \
          moved later.",
    risk: ChangeRisk::Low,
    risks: "",
    goal: TuningGoal::Both,
    persists: "isolcpus=managed_irq,LIST on the kernel command line keeps them off these CPUs.",
    source: "Linux: kernel/irq/manage.c, irq_can_set_affinity_usr",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let outcomes: Vec<RuleOutcome> = case.devices().filter_map(|link| of_link(case, link)).collect();
    match outcomes.is_empty() {
        true => vec![RuleOutcome::NotHere("no NIC interrupt is known to be managed by the kernel".to_owned())],
        false => outcomes,
    }
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let managed = case.host.interrupts_of(link).filter(|interrupt| interrupt.is_managed == Some(true)).count();
    let text = format!("{}: only the kernel chooses the CPUs of {managed} of its interrupts", link.name);
    (managed > 0).then_some(RuleOutcome::Good(text))
}
