//! Slots of rows in the palette of charts: a row has the same colour in all charts of a page, and a method also in the
//! pages of other runs if no other row of the run has its slot.

use vtax_model::{method::IoMethod, study::Row};
use vtax_plot::MethodSlots;

use super::blocks::distinct;

/// Number of slots with a separate colour besides the baseline's.
const COLOURS: usize = 7;

/// Returns the slots of these rows.
pub(crate) fn slots(rows: impl Iterator<Item = Row>, baseline: Row) -> MethodSlots {
    MethodSlots::new(numbered(rows, baseline).into_iter().map(|(row, slot)| (row.to_string(), slot)))
}

fn numbered(rows: impl Iterator<Item = Row>, baseline: Row) -> Vec<(Row, usize)> {
    let mut slots = vec![(baseline, 0)];
    let others = distinct(rows).into_iter().filter(|row| *row != baseline);
    for (place, row) in others.enumerate() {
        let own = own(row).unwrap_or(place) % COLOURS;
        // From its own slot in a circle, then beyond the colours.
        let circle = (0..COLOURS).map(|step| 1 + (own + step) % COLOURS);
        let free = circle.chain(COLOURS + 1..).find(|slot| slots.iter().all(|(_, taken)| taken != slot));
        slots.extend(free.map(|slot| (row, slot)));
    }
    slots
}

/// Place of a method among all methods, native excluded.
fn own(row: Row) -> Option<usize> {
    let Row::Method(method) = row else { return None };
    IoMethod::ALL.iter().filter(|other| **other != IoMethod::Native).position(|other| *other == method)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_synthetic::row;

    fn of(names: &[&str]) -> Vec<usize> {
        let slots = numbered(names.iter().map(|name| row(name)), row("native"));
        names.iter().filter_map(|name| slots.iter().find(|(own, _)| *own == row(name))).map(|(_, slot)| *slot).collect()
    }

    #[test]
    fn a_method_has_the_same_slot_in_several_runs() {
        let zones = ["native", "shared-ip", "veth", "bridge", "macvlan", "ipvlan", "vxlan"];
        assert_eq!(of(&zones), [0, 6, 7, 1, 2, 3, 4]);
        assert_eq!(of(&["vxlan", "bridge", "native"]), [4, 1, 0]);
    }

    #[test]
    fn all_slots_differ() {
        let names = IoMethod::ALL.map(<&str>::from);
        let mut slots = of(&names);
        slots.sort_unstable();
        assert_eq!(slots, (0..names.len()).collect::<Vec<_>>());
    }
}
