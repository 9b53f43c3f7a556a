//! The tuning rules, one file each.

mod backlog;
mod bridge_netfilter;
mod c_states;
mod coalescing;
mod conntrack;
mod governor;
mod host_cpus;
mod interrupt_spread;
mod iommu;
mod irq_deferral;
mod irq_node;
mod irqbalance;
mod lro;
mod managed_irqs;
mod moderate_rcvbuf;
mod mtu;
mod offloads;
mod ring_size;
mod rps;
mod stack_choices;
mod tcp_buffers;
mod vcpu_pinning;
mod vhost_node;
mod virtio_queues;
mod xps;

use crate::rule::TuningRule;

pub static RULES: &[TuningRule] = &[
    host_cpus::RULE,
    irq_node::RULE,
    interrupt_spread::RULE,
    managed_irqs::RULE,
    irqbalance::RULE,
    rps::RULE,
    xps::RULE,
    vhost_node::RULE,
    vcpu_pinning::RULE,
    virtio_queues::RULE,
    c_states::RULE,
    governor::RULE,
    tcp_buffers::RULE,
    moderate_rcvbuf::RULE,
    backlog::RULE,
    ring_size::RULE,
    coalescing::RULE,
    irq_deferral::RULE,
    offloads::RULE,
    lro::RULE,
    mtu::RULE,
    bridge_netfilter::RULE,
    conntrack::RULE,
    iommu::RULE,
    stack_choices::RULE,
];
