//! Interrupts whose CPUs are managed by the kernel.

use vtax_host::inspect::HostLink;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::{INTERRUPTS, LINKS, MANAGED},
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "managed-irqs",
    title: "kernel-managed interrupts",
    reads: "a write to /proc/irq/N/smp_affinity_list gives EIO; root sees it in /sys/kernel/debug/irq/irqs/N",
    needs: &[MANAGED, INTERRUPTS, LINKS],
    good: "No action required: the kernel spread them over all CPUs when the driver started.",
    why: "Some drivers let the kernel choose the CPUs of their interrupts (IRQF_AFFINITY_MANAGED). Their affinity cannot be changed \
          afterwards.",
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
    let text = format!("{}: {managed} of its interrupts are managed by the kernel", link.name);
    (managed > 0).then_some(RuleOutcome::Good(text))
}
