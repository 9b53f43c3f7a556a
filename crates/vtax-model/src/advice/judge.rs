//! Verdicts from rules and figures.

use super::{
    command::{DecidingCommand, FIRST_ROUNDS, MeasuringStudies, WantedMeasurement},
    evidence::{ChosenFigure, Evidence},
    figure::{FigureTarget, MeasuredFigure},
    inventory::Inventory,
    relaxation::{Relaxation, RelaxedTo},
    requirements::Requirements,
    rules::{Candidate, Exclusion, RULES, RuleAnswer},
    verdict::{AdviceReport, AdviceRow, AdviceVerdict, ComparedFigure, OpenCause, OpenQuestion, TargetRelation},
};
use crate::{
    method::{DomainKind, MethodVariant},
    topology::Cable,
    units::Mtu,
};

/// Everything that advice is derived from.
#[derive(Debug, Clone, Copy)]
pub struct AdviceInput<'a> {
    pub requirements: &'a Requirements,
    /// Hardware of the machine.
    pub inventory: &'a Inventory,
    /// Figures of all runs, in any order.
    pub figures: &'a [MeasuredFigure],
    /// MTU of the guests' wire, for commands.
    pub mtu: Mtu,
    /// Cable between two NICs of the machine, for commands that measure PCI devices.
    pub cable: Option<&'a Cable>,
    /// Time of the advice, in seconds since 1970.
    pub now: i64,
}

/// Returns a verdict about each way of attaching a guest or zone.
pub fn advise(input: &AdviceInput<'_>) -> AdviceReport {
    let surroundings = Surroundings {
        input: *input,
        evidence: Evidence::new(input.figures),
        studies: MeasuringStudies::new(),
        candidates: MethodVariant::all().into_iter().filter(|variant| variant.domain != DomainKind::Primary).collect(),
    };
    let judge = Judge::new(&surroundings, input.requirements);
    let mut rows: Vec<AdviceRow> = surroundings.candidates.iter().map(|variant| judge.row(*variant)).collect();
    rows.sort_by_key(|row| row.verdict.rank());
    AdviceReport {
        requirements: input.requirements.clone(),
        targets: judge.targets.clone(),
        compared_figures: judge.compared,
        rows,
    }
}

/// Input in the form in which it is consulted for each list of requirements.
struct Surroundings<'a> {
    input: AdviceInput<'a>,
    evidence: Evidence<'a>,
    studies: MeasuringStudies,
    candidates: Vec<MethodVariant>,
}

/// List of requirements, with the figures that are compared with it.
struct Judge<'a> {
    around: &'a Surroundings<'a>,
    requirements: &'a Requirements,
    targets: Vec<FigureTarget>,
    compared: usize,
}

/// A figure's comparison with its target.
struct TargetComparison {
    figure: Option<ComparedFigure>,
    open: Option<OpenQuestion>,
    command: Option<DecidingCommand>,
}

impl<'a> Judge<'a> {
    fn new(around: &'a Surroundings<'a>, requirements: &'a Requirements) -> Judge<'a> {
        let targets = requirements.targets();
        let judge = Judge { around, requirements, targets, compared: 0 };
        // Excluded methods count as well, so that a figure doesn't change with a requirement that isn't about it.
        let is_exact = |target: &FigureTarget, variant: &MethodVariant| {
            matches!(judge.choose(*variant, *target), ChosenFigure::Exact(_))
        };
        let of_variant = |variant| judge.targets.iter().filter(|target| is_exact(target, variant)).count();
        let compared = around.candidates.iter().map(of_variant).sum();
        Judge { compared, ..judge }
    }

    fn choose(&self, variant: MethodVariant, target: FigureTarget) -> ChosenFigure<'a> {
        let device = self.requirements.device_of(target.role);
        self.around.evidence.choose(variant, device, target.role, self.requirements.guests())
    }

    fn row(&self, variant: MethodVariant) -> AdviceRow {
        let (verdict, remarks, compared) = self.verdict(variant);
        let relaxations = self.relaxations(variant, &verdict, &compared);
        let is_open = matches!(verdict, AdviceVerdict::Undecided { .. } | AdviceVerdict::NotMeasured { .. });
        let commands = if is_open { merged(&compared) } else { Vec::new() };
        let figures = compared.into_iter().map(|compared| compared.figure).collect();
        AdviceRow { variant, verdict, figures, remarks, commands, relaxations }
    }

    fn verdict(&self, variant: MethodVariant) -> (AdviceVerdict, Vec<String>, Vec<TargetComparison>) {
        let (mut exclusions, mut remarks, mut open) = (Vec::new(), Vec::new(), Vec::new());
        let candidate = Candidate { variant, requirements: self.requirements, inventory: self.around.input.inventory };
        for rule in &RULES {
            match (rule.judge)(&candidate) {
                RuleAnswer::Admits => {}
                RuleAnswer::AdmitsIf(condition) => remarks.push(condition),
                RuleAnswer::Excludes(exclusion) => exclusions.push(exclusion),
                RuleAnswer::Depends(reason) => open.push(OpenQuestion {
                    requirement: rule.requirement,
                    cause: OpenCause::Condition { reason },
                    no_command: None,
                }),
            }
        }
        let compared: Vec<TargetComparison> =
            self.targets.iter().map(|target| self.compare(variant, *target)).collect();
        remarks.extend(extrapolations(&compared, self.requirements.guests()));
        open.extend(compared.iter().filter_map(|compared| compared.open.clone()));
        let verdict = match exclusions.is_empty() {
            false => AdviceVerdict::Excluded { exclusions },
            true => self.of_figures(variant, &compared, open),
        };
        (verdict, remarks, compared)
    }

    fn of_figures(
        &self,
        variant: MethodVariant,
        compared: &[TargetComparison],
        open: Vec<OpenQuestion>,
    ) -> AdviceVerdict {
        let figures = || compared.iter().filter_map(|compared| compared.figure.as_ref());
        let beyond = figures().filter(|figure| figure.relation == TargetRelation::Beyond);
        let requirements: Vec<_> = beyond.map(|figure| figure.role.requirement()).collect();
        let unavailable = self.around.input.inventory.unavailable.iter().find(|(method, _)| *method == variant);
        let is_unmeasured = |question: &OpenQuestion| matches!(question.cause, OpenCause::NoFigure { .. });
        match unavailable {
            _ if !requirements.is_empty() => AdviceVerdict::Fails { requirements },
            Some((_, unsupported)) => AdviceVerdict::Unavailable(unsupported.clone()),
            None if open.is_empty() => AdviceVerdict::Meets,
            None if figures().next().is_none() && open.iter().all(is_unmeasured) => AdviceVerdict::NotMeasured { open },
            None => AdviceVerdict::Undecided { open },
        }
    }

    fn compare(&self, variant: MethodVariant, target: FigureTarget) -> TargetComparison {
        match self.choose(variant, target) {
            ChosenFigure::Exact(figure) => self.compare_exact(figure, target),
            ChosenFigure::OtherGuests(figure) => {
                let cause = OpenCause::Extrapolated { from_guests: figure.guests };
                let shown = Some(self.shown(figure, TargetRelation::Open));
                TargetComparison { figure: shown, ..self.open(variant, target, cause, FIRST_ROUNDS) }
            }
            ChosenFigure::Refused(figure, reason) => {
                let cause = OpenCause::NoFigure { refused: Some(format!("run {}: {reason}", figure.run)) };
                self.open(variant, target, cause, FIRST_ROUNDS)
            }
            ChosenFigure::Missing => self.open(variant, target, OpenCause::NoFigure { refused: None }, FIRST_ROUNDS),
        }
    }

    fn compare_exact(&self, figure: &MeasuredFigure, target: FigureTarget) -> TargetComparison {
        let wide = figure.value.simultaneous(self.compared);
        let bounds = wide.map(|wide| target.bounds(wide).map(|bound| target.is_met_by(bound)));
        let relation = match bounds {
            Some([true, true]) => TargetRelation::Within,
            Some([false, false]) => TargetRelation::Beyond,
            _ => TargetRelation::Open,
        };
        let shown = Some(self.shown(figure, relation));
        if relation != TargetRelation::Open {
            return TargetComparison { figure: shown, open: None, command: None };
        }
        let (cause, rounds) = match wide {
            Some(wide) => (OpenCause::Across, wide.rounds_to_exclude(target.at, self.compared)),
            None => (OpenCause::NoInterval, Some(FIRST_ROUNDS)),
        };
        let open = match rounds {
            Some(rounds) => self.open(figure.variant, target, cause, rounds),
            None => TargetComparison { figure: None, open: Some(at_the_target(target)), command: None },
        };
        TargetComparison { figure: shown, ..open }
    }

    fn open(&self, variant: MethodVariant, target: FigureTarget, cause: OpenCause, rounds: u32) -> TargetComparison {
        let input = self.around.input;
        let wanted = WantedMeasurement {
            variant,
            device: self.requirements.device_of(target.role),
            role: target.role,
            has_streams: self.requirements.options().bandwidth.is_some(),
            guests: self.requirements.guests(),
            mtu: input.mtu,
            cable: input.cable,
            rounds,
        };
        let (command, no_command) = match self.around.studies.command(wanted) {
            Ok(command) => (Some(command), None),
            Err(reason) => (None, Some(reason)),
        };
        let open = Some(OpenQuestion { requirement: target.role.requirement(), cause, no_command });
        TargetComparison { figure: None, open, command }
    }

    fn shown(&self, figure: &MeasuredFigure, relation: TargetRelation) -> ComparedFigure {
        let wide = figure.value.simultaneous(self.compared);
        ComparedFigure {
            role: figure.role,
            mean: figure.value.mean,
            interval: wide.map(|wide| [wide.low, wide.high]),
            guests: figure.guests,
            run: figure.run.clone(),
            age: u64::try_from(self.around.input.now.saturating_sub(figure.at)).unwrap_or(0),
            relation,
        }
    }

    /// Returns the single requirements that admit a method if they are relaxed. Each is tried: the method is judged again.
    fn relaxations(
        &self,
        variant: MethodVariant,
        verdict: &AdviceVerdict,
        compared: &[TargetComparison],
    ) -> Vec<Relaxation> {
        let proposed: Vec<RelaxedTo> = match verdict {
            AdviceVerdict::Excluded { exclusions } => match exclusions.as_slice() {
                [Exclusion { relaxed, .. }] => relaxed.iter().copied().collect(),
                _ => Vec::new(),
            },
            AdviceVerdict::Fails { requirements } if requirements.len() == 1 => self.reached(compared),
            _ => Vec::new(),
        };
        proposed.into_iter().filter_map(|to| self.tried(variant, to)).collect()
    }

    fn reached(&self, compared: &[TargetComparison]) -> Vec<RelaxedTo> {
        let pairs = self.targets.iter().zip(compared);
        let reached = |(target, compared): (&FigureTarget, &TargetComparison)| {
            let figure = compared.figure.as_ref().filter(|figure| figure.relation == TargetRelation::Beyond)?;
            let [worst, _] = target.bounds(figure.bounded()?);
            RelaxedTo::target(target.role, worst)
        };
        pairs.filter_map(reached).collect()
    }

    fn tried(&self, variant: MethodVariant, to: RelaxedTo) -> Option<Relaxation> {
        let relaxed = self.requirements.relaxed(to).ok()?;
        let (verdict, ..) = Judge::new(self.around, &relaxed).verdict(variant);
        match verdict {
            AdviceVerdict::Meets => Some(Relaxation { to, meets: true }),
            AdviceVerdict::Undecided { .. } | AdviceVerdict::NotMeasured { .. } => {
                Some(Relaxation { to, meets: false })
            }
            AdviceVerdict::Fails { .. } | AdviceVerdict::Unavailable(_) | AdviceVerdict::Excluded { .. } => None,
        }
    }
}

fn at_the_target(target: FigureTarget) -> OpenQuestion {
    OpenQuestion {
        requirement: target.role.requirement(),
        cause: OpenCause::Across,
        no_command: Some("the figure is so close to the target that 2000 rounds would not decide it".to_owned()),
    }
}

fn extrapolations(compared: &[TargetComparison], guests: u32) -> Option<String> {
    let mut others: Vec<u32> =
        compared.iter().filter_map(|compared| compared.figure.as_ref()).map(|figure| figure.guests).collect();
    others.retain(|count| *count != guests);
    others.sort_unstable();
    others.dedup();
    let counts: Vec<String> = others.iter().map(ToString::to_string).collect();
    match others.as_slice() {
        [] => None,
        [1] => Some("extrapolated from 1 guest".to_owned()),
        _ => Some(format!("extrapolated from {} guests", counts.join(" and "))),
    }
}

/// Returns the commands, each once, with the most rounds that one of its figures needs.
fn merged(compared: &[TargetComparison]) -> Vec<DecidingCommand> {
    let mut commands: Vec<DecidingCommand> = Vec::new();
    for command in compared.iter().filter_map(|compared| compared.command.as_ref()) {
        match commands.iter_mut().find(|known| known.is_like(command)) {
            Some(known) if known.rounds < command.rounds => *known = command.clone(),
            Some(_) => {}
            None => commands.push(command.clone()),
        }
    }
    commands
}
