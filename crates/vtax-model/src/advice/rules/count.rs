//! Number of guests.

use super::{AdviceRule, Candidate, Exclusion, RuleAnswer};
use crate::{
    advice::{relaxation::RelaxedTo, requirements::Requirement},
    method::{Capability, GuestCount},
};

pub(super) const RULE: AdviceRule = AdviceRule { requirement: Requirement::Guests, judge };

fn judge(candidate: &Candidate<'_>) -> RuleAnswer {
    let inventory = candidate.inventory;
    let (free, what) = match candidate.capabilities().count {
        GuestCount::Unlimited => return RuleAnswer::Admits,
        GuestCount::One => (Some(1), "host"),
        GuestCount::SwitchPorts => (Some(GuestCount::BRIDGE_PORTS as u32 - 1), "port of a bridge"),
        GuestCount::Functions => (inventory.functions, "free virtual function"),
        GuestCount::Devices => (inventory.devices, "free device"),
        GuestCount::RootComplexes => (inventory.root_complexes, "free root complex"),
        GuestCount::Wires => (inventory.wires, "free wire"),
    };
    let guests = candidate.requirements.guests();
    match free {
        None => RuleAnswer::Depends(format!("the number of {} is unknown: `vtax io list` lists them", plural(what))),
        Some(free) if guests <= free => RuleAnswer::Admits,
        Some(free) => {
            let object = counted(free, what);
            let exclusion =
                Exclusion::new(RelaxedTo::Guests(free), counted(guests, "guest"), candidate.reason(Capability::Count));
            let relaxed = exclusion.relaxed.filter(|_| free > 0);
            RuleAnswer::Excludes(Exclusion { relaxed, ..exclusion.because_of(object) })
        }
    }
}

fn counted(count: u32, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {}", plural(what)),
    }
}

fn plural(what: &str) -> String {
    match (what, what.ends_with('x')) {
        ("port of a bridge", _) => "ports of a bridge".to_owned(),
        (_, true) => format!("{what}es"),
        (_, false) => format!("{what}s"),
    }
}
