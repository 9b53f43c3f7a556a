//! Choice of the figure that a requirement is compared with.

use std::collections::HashMap;

use super::figure::{FigureRole, FigureStanding, MeasuredFigure};
use super::requirements::RequiredDevice;
use crate::method::MethodVariant;

/// Figures by method, device and quantity.
pub(super) struct Evidence<'a>(HashMap<EvidenceKey, Vec<&'a MeasuredFigure>>);

type EvidenceKey = (MethodVariant, RequiredDevice, FigureRole);

/// Best evidence for one figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ChosenFigure<'a> {
    /// Valid, and of as many guests as required.
    Exact(&'a MeasuredFigure),
    /// Valid, but of another number of guests.
    OtherGuests(&'a MeasuredFigure),
    /// Only figures that are not valid here, e.g. this one, with its reason.
    Refused(&'a MeasuredFigure, &'a str),
    /// None.
    Missing,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(figures: &'a [MeasuredFigure]) -> Evidence<'a> {
        let mut by_key: HashMap<EvidenceKey, Vec<&MeasuredFigure>> = HashMap::new();
        for figure in figures {
            by_key.entry((figure.variant, figure.device, figure.role)).or_default().push(figure);
        }
        Evidence(by_key)
    }

    /// Returns the newest valid figure of this number of guests. It is never chosen by its value: the best of many runs
    /// would be better than the method is.
    pub(super) fn choose(
        &self,
        variant: MethodVariant,
        device: RequiredDevice,
        role: FigureRole,
        guests: u32,
    ) -> ChosenFigure<'a> {
        let figures = self.0.get(&(variant, device, role)).map_or([].as_slice(), Vec::as_slice);
        let newest = |of: &dyn Fn(&MeasuredFigure) -> bool| {
            let matching = figures.iter().copied().filter(|figure| of(figure));
            matching.max_by(|one, other| (one.at, &one.run).cmp(&(other.at, &other.run)))
        };
        let is_valid = |figure: &MeasuredFigure| figure.standing == FigureStanding::Valid;
        if let Some(exact) = newest(&|figure| is_valid(figure) && figure.guests == guests) {
            return ChosenFigure::Exact(exact);
        }
        let valid = figures.iter().filter(|figure| is_valid(figure));
        if let Some(nearest) = valid.map(|figure| figure.guests).min_by_key(|count| count.abs_diff(guests)) {
            let other = newest(&|figure| is_valid(figure) && figure.guests == nearest);
            return other.map_or(ChosenFigure::Missing, ChosenFigure::OtherGuests);
        }
        match newest(&|_| true) {
            Some(refused) => match &refused.standing {
                FigureStanding::Refused { reason } => ChosenFigure::Refused(refused, reason),
                FigureStanding::Valid => ChosenFigure::Missing,
            },
            None => ChosenFigure::Missing,
        }
    }
}
