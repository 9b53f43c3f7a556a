//! Assigns cables to the rows of a study whose wires are cables between real NICs.
//!
//! If there are too few cables, virtual functions share the cable of `native`. They don't change its path: the NIC's
//! driver gets no other receive handler for them, as it would for a bridge or a macvlan.

use std::collections::BTreeMap;

use vtax_lab::no_cable;
use vtax_model::{
    method::{DomainKind, IoMethod, Unsupported},
    run::UnavailableRow,
    study::{Row, StudyNetwork},
};

/// The cables of a study's rows, by their index in [`StudyNetwork::cables`].
#[derive(Debug, Default, PartialEq)]
pub(super) struct Cabling {
    pub(super) of: BTreeMap<Row, usize>,
    /// Rows for which there is no cable.
    pub(super) lacking: Vec<UnavailableRow>,
}

pub(super) fn cabling(network: &StudyNetwork, rows: &[Row]) -> Cabling {
    let mut cabling = Cabling::default();
    let (count, mut next) = (network.cables.len(), 0);
    for row in rows {
        let native = (count < rows.len() && shares(network, *row)).then(|| cabling.of.get(&NATIVE)).flatten();
        let shared = native.or_else(|| row.step().and_then(|_| cabling.of.get(&row.untuned())));
        match (shared.copied(), row) {
            _ if count == 0 => cabling.lacking.extend(without(*row)),
            (Some(shared), _) => drop(cabling.of.insert(*row, shared)),
            // Engines, loads and settings are compared on one path.
            (None, Row::Engine(_) | Row::Nic(_) | Row::Load(_) | Row::AsIs | Row::Tuned { path: None, .. }) => {
                cabling.of.insert(*row, 0);
            }
            (None, _) if next < count => {
                cabling.of.insert(*row, next);
                next += 1;
            }
            (None, _) => cabling.lacking.push(UnavailableRow { method: *row, unsupported: too_few(count) }),
        }
    }
    cabling
}

const NATIVE: Row = Row::Method(IoMethod::Native);

/// A row with several pairs has clients behind its own switch, so it also needs its own cable.
fn shares(network: &StudyNetwork, row: Row) -> bool {
    row.method() == Some(IoMethod::SrIov) && network.pairs == 1
}

fn without(row: Row) -> Option<UnavailableRow> {
    let method = row.method().filter(|method| method.is_hardware())?;
    Some(UnavailableRow { method: row, unsupported: no_cable(method) })
}

fn too_few(count: usize) -> Unsupported {
    let cables = if count == 1 { "1 is named".to_owned() } else { format!("{count} are named") };
    Unsupported {
        why: format!("requires a dedicated cable, and {cables}"),
        remedy: "name another (--cable NIC,NIC), or omit other rows (--methods)".to_owned(),
    }
}

/// Returns why a guest-only row can't run where zones are requested.
pub(super) fn of_guests_only(network: &StudyNetwork, row: Row) -> Option<Unsupported> {
    let method = row.method().filter(|_| network.domains == DomainKind::Zone)?;
    (!method.domains().contains(&DomainKind::Zone) && method != IoMethod::Native).then(|| Unsupported {
        why: format!("{method} attaches guests, not zones"),
        remedy: "omit --guest zone; the nearest method for zones is --methods bridge".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use vtax_model::study::Study;

    use super::*;

    fn cabled(study: &str, cables: usize, rows: &[&str]) -> (Vec<(String, usize)>, Vec<String>) {
        of_study(Study::built_in(study).expect("built in"), cables, rows)
    }

    fn of_study(mut study: Study, cables: usize, rows: &[&str]) -> (Vec<(String, usize)>, Vec<String>) {
        let network = study.network_mut().expect("of a network");
        network.cables = (0..cables).map(|n| format!("a{n},b{n}").parse().expect("a cable")).collect();
        let rows: Vec<Row> = rows.iter().map(|row| row.parse().expect("a row")).collect();
        let Cabling { of, lacking } = cabling(network, &rows);
        let of = rows.iter().filter_map(|row| Some((row.to_string(), *of.get(row)?))).collect();
        (of, lacking.iter().map(|row| row.method.to_string()).collect())
    }

    fn on(row: &str, cable: usize) -> (String, usize) {
        (row.to_owned(), cable)
    }

    const ROWS: [&str; 4] = ["native", "assigned", "sr-iov", "paravirtual"];

    #[test]
    fn each_row_has_its_own_while_there_are_enough() {
        let all = vec![on("native", 0), on("assigned", 1), on("sr-iov", 2), on("paravirtual", 3)];
        assert_eq!(cabled("sparc-t7-1", 4, &ROWS), (all, vec![]));
    }

    #[test]
    fn functions_share_the_cable_of_native_and_others_are_omitted() {
        let three = vec![on("native", 0), on("assigned", 1), on("sr-iov", 0), on("paravirtual", 2)];
        assert_eq!(cabled("sparc-t7-1", 3, &ROWS), (three, vec![]));
        let one = (vec![on("native", 0), on("sr-iov", 0)], vec!["assigned".to_owned(), "paravirtual".to_owned()]);
        assert_eq!(cabled("sparc-t7-1", 1, &ROWS), one);
        let rows = ["native", "vf-per-guest"];
        assert_eq!(cabled("vmdq", 1, &rows), (vec![on("native", 0)], vec!["vf-per-guest".to_owned()]));
    }

    /// The sharing once depended on the baseline, which was always native.
    #[test]
    fn functions_share_the_cable_of_native_with_any_baseline() {
        let study = Study {
            baseline: "paravirtual".parse().expect("a row"),
            ..Study::built_in("sparc-t7-1").expect("built in")
        };
        let three = vec![on("native", 0), on("assigned", 1), on("sr-iov", 0), on("paravirtual", 2)];
        assert_eq!(of_study(study, 3, &ROWS), (three, vec![]));
    }

    #[test]
    fn without_cables_only_hardware_is_lacking() {
        assert_eq!(cabled("sparc-t7-1", 0, &ROWS), (vec![], vec!["assigned".to_owned(), "sr-iov".to_owned()]));
    }
}
