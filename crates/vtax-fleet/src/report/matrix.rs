//! All tests of the rounds as a matrix: rows send or initiate, columns receive or respond.

use std::collections::BTreeMap;

use vtax_model::foreign::ForeignText;

use crate::{
    header::MeshHeader,
    name::FleetName,
    sample::{EndId, MeshSample},
    verdict::{MeshDirection, MeshVerdict},
};

/// The tests of a mesh by their pairs, ends of one part of the fleet next to each other.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshMatrix {
    /// Names of the rows, and of the columns.
    pub ends: Vec<ForeignText>,
    /// Parts of the fleet in the same order: rails with their uplinks or racks.
    pub parts: Vec<MatrixPart>,
    /// Cells that were measured, by row and column.
    pub cells: Vec<MatrixCell>,
    /// Logarithms of the effects of each end: as the sender or initiator, and as the receiver or responder.
    pub effects: Vec<[f64; 2]>,
    /// Standard deviation of the logarithm of a test.
    pub noise: f64,
}

/// Consecutive ends of the matrix that are in one part of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixPart {
    /// Empty if the list of hosts names no parts.
    pub name: ForeignText,
    pub ends: usize,
}

/// The test of a pair in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatrixCell {
    pub row: usize,
    pub column: usize,
    /// Logarithm of its speed, minus that of two usual ends.
    pub relative: f64,
}

impl MeshMatrix {
    /// Arranges the samples of a mesh. The last sample of a pair counts.
    pub fn of(header: &MeshHeader, samples: &[MeshSample]) -> MeshMatrix {
        let verdict = MeshVerdict::of(header, samples);
        let mut order: Vec<EndId> = (0..header.ends.len()).map(EndId).collect();
        order.sort_by_key(|end| (natural(&part(header, *end)), end.0));
        let place: BTreeMap<EndId, usize> = order.iter().enumerate().map(|(place, end)| (*end, place)).collect();
        let level: BTreeMap<Option<&FleetName>, f64> = { verdict.rails.iter() }
            .filter_map(|rail| {
                let (end, _) = rail.standings.keys().next()?;
                Some((header.ends[end.0].nic.rail.as_ref(), rail.overall))
            })
            .collect();
        let mut cells: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.stage.is_of_rounds()) {
            let usual = level.get(&header.ends[sample.pair.from.0].nic.rail.as_ref());
            if let (Some(speed), Some(usual)) = (sample.log_speed(header.test.kind), usual) {
                cells.insert((place[&sample.pair.from], place[&sample.pair.to]), speed - usual);
            }
        }
        let parts = order.chunk_by(|one, other| part(header, *one) == part(header, *other));
        MeshMatrix {
            ends: order.iter().map(|end| header.name(*end).clone()).collect(),
            parts: parts.map(|ends| MatrixPart { name: part(header, ends[0]).into(), ends: ends.len() }).collect(),
            cells: cells.into_iter().map(|((row, column), relative)| MatrixCell { row, column, relative }).collect(),
            effects: order.iter().map(|end| effects(&verdict, *end)).collect(),
            noise: verdict.rails.iter().map(|rail| rail.noise).fold(0.0, f64::max),
        }
    }
}

fn effects(verdict: &MeshVerdict<'_>, end: EndId) -> [f64; 2] {
    MeshDirection::BOTH.map(|way| verdict.rails.iter().find_map(|rail| rail.effect(end, way)).unwrap_or_default())
}

/// Sorts leaf2 before leaf10: letters and numbers in turn.
fn natural(name: &str) -> Vec<(String, u64)> {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (text, after) = rest.split_at(rest.find(is_digit).unwrap_or(rest.len()));
        let (digits, next) = after.split_at(after.find(|letter| !is_digit(letter)).unwrap_or(after.len()));
        parts.push((text.to_owned(), digits.parse().unwrap_or(u64::MAX)));
        rest = next;
    }
    parts
}

/// The rail of an end and its uplink, or its rack: "r0 leaf7".
fn part(header: &MeshHeader, end: EndId) -> String {
    let end = &header.ends[end.0];
    let names = [end.nic.rail.as_ref(), end.nic.uplink.as_ref().or(end.rack.as_ref())];
    names.into_iter().flatten().map(FleetName::as_str).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample::MeshStage,
        simulated::{SimulatedFleet, named},
    };

    #[test]
    fn parts_are_sorted_by_their_numbers() {
        let mut names = ["leaf10", "leaf2", "r1 leaf9", "leaf", "r1 leaf10"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["leaf2", "leaf10", "leaf", "r1 leaf9", "r1 leaf10"]);
    }

    #[test]
    fn ends_of_one_part_are_neighbours_and_each_pair_has_a_cell() {
        let slow = BTreeMap::from([((EndId(3), MeshDirection::Sends), 0.5)]);
        let fleet = SimulatedFleet { noise: 0.01, slow, ..SimulatedFleet::default() };
        let mut ends = named(8, Some(4));
        ends.swap(1, 6);
        let (header, mut samples) = fleet.measured(&ends, None, 1);
        samples.retain(|sample| sample.stage == MeshStage::Rounds);
        let matrix = MeshMatrix::of(&header, &samples);
        let names: Vec<&str> = matrix.ends.iter().map(ForeignText::raw).collect();
        assert_eq!(names, ["gpu000", "gpu002", "gpu003", "gpu001", "gpu006", "gpu004", "gpu005", "gpu007"]);
        let parts: Vec<(&str, usize)> = matrix.parts.iter().map(|part| (part.name.raw(), part.ends)).collect();
        assert_eq!(parts, [("leaf0", 4), ("leaf1", 4)]);
        assert_eq!(matrix.cells.len(), 8 * 7);
        assert!((matrix.effects[2][0] + 0.5).abs() < 0.05 && matrix.effects[2][1].abs() < 0.05, "{:?}", matrix.effects);
        for cell in &matrix.cells {
            let expected = if matrix.ends[cell.row].raw() == "gpu003" { -0.5 } else { 0.0 };
            assert!((cell.relative - expected).abs() < 0.1, "{cell:?}");
        }
    }
}
