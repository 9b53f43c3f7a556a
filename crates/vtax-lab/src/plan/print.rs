//! A plan for people: the dry run.

use std::fmt;

use super::{Blueprint, LabEndpoint, Plan};
use crate::{guest::seed::SeedText, step::LabStep};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.blueprint)?;
        let width = self.steps.len().to_string().len();
        for (step, number) in self.steps.iter().zip(1..) {
            writeln!(f, "{number:>width$}  {step}")?;
            if let LabStep::StartGuest { launch, .. } = step {
                write!(f, "{}", SeedText(launch))?;
            }
        }
        writeln!(f, "endpoints")?;
        self.blueprint.endpoints.iter().try_for_each(|endpoint| writeln!(f, "  {endpoint}"))
    }
}

impl fmt::Display for Blueprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blueprint { lab, addresses, mtu, hosts, zones, guests, wires, .. } = self;
        let (hosts, wires, zones) = (hosts.len(), wires.len(), zones.len());
        write!(f, "lab {lab}: hosts {hosts}, wires {wires}, zones {zones}, ")?;
        if let [first, ..] = guests.as_slice() {
            write!(f, "guests {} ({}), ", guests.len(), first.launch.accel)?;
        }
        write!(f, "addresses {addresses}, mtu {mtu}")
    }
}

impl fmt::Display for LabEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LabEndpoint { name, method, flavour, address, mtu, stack, .. } = self;
        let kind = flavour.map(|flavour| format!(":{flavour}")).unwrap_or_default();
        write!(f, "{name} {address} {method}{kind} mtu {mtu} by ")?;
        for (index, place) in stack.iter().enumerate() {
            write!(f, "{}{place}", if index == 0 { "" } else { " > " })?;
        }
        Ok(())
    }
}
