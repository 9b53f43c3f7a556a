//! Advice as a table: methods, the figures that are required, and verdicts.

use vtax_model::advice::{
    AdviceReport, AdviceRow, AdviceVerdict, ComparedFigure, DecidingCommand, Exclusion, FigureRole, FigureTarget,
    OpenCause, OpenQuestion, Relaxation, Requirement,
};

use vtax_plot::PlotError;

use super::{
    html::{self, Article},
    number::{counted, waiting},
    view::{Column, Group, Section, SectionPart, Table, TableRow, Value, View},
};

pub fn advice(report: &AdviceReport) -> View {
    let (alike, rows) = grouped(report);
    let mut parts = vec![SectionPart::Table(methods(report, rows))];
    parts.extend(note(report).map(SectionPart::Paragraph));
    let sections = [
        Some(Section { parts, ..Section::default() }),
        Section::bullets("Excluded for the same reason", alike),
        Section::new("To decide", to_decide(report)),
        Section::bullets("What would change the answer", changes(report)),
    ];
    View { sections: sections.into_iter().flatten().collect(), ..View::default() }
}

/// Returns one HTML file with an advice.
pub fn advice_page(report: &AdviceReport) -> Result<String, PlotError> {
    let title = "Methods that meet the requirements";
    let view = View { title: title.to_owned(), ..advice(report) };
    html::page(title, &[], &[Article { id: "advice".to_owned(), view, overview: None, charts: Vec::new() }])
}

/// Returns excluded methods without figures, by their common reason, and the other rows.
fn grouped(report: &AdviceReport) -> (Vec<String>, Vec<&AdviceRow>) {
    let is_bare = |row: &AdviceRow| {
        matches!(row.verdict, AdviceVerdict::Excluded { .. }) && row.figures.iter().all(Option::is_none)
    };
    let bare = report.rows.iter().filter(|row| is_bare(row)).map(|row| (reasons(row), row.variant.to_string()));
    let several: Vec<(String, Vec<String>)> =
        by_text(bare).into_iter().filter(|(_, methods)| methods.len() > 1).collect();
    let is_told = |row: &AdviceRow| is_bare(row) && several.iter().any(|(reason, _)| *reason == reasons(row));
    let rows = report.rows.iter().filter(|row| !is_told(row)).collect();
    (several.iter().map(|(reason, methods)| format!("{}: {reason}", methods.join(", "))).collect(), rows)
}

/// Collects the names that belong to the same text, in the order of their first appearance.
fn by_text(pairs: impl Iterator<Item = (String, String)>) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (text, name) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) if names.last() == Some(&name) => {}
            Some((_, names)) => names.push(name),
            None => groups.push((text, vec![name])),
        }
    }
    groups
}

fn methods(report: &AdviceReport, rows: Vec<&AdviceRow>) -> Table {
    let units: Vec<FigureColumn> = report.targets.iter().map(|target| FigureColumn::of(*target)).collect();
    let figures = units.iter().map(|unit| Column::right(unit.head.clone()));
    let columns: Vec<Column> = figures.chain([Column::wrapped("verdict")]).collect();
    let row = |row: &AdviceRow| {
        let figures = row.figures.iter().zip(&units).map(|(figure, unit)| unit.value(figure.as_ref()));
        TableRow::new(vec![row.variant.to_string()], figures.chain([verdict(row).into()]))
    };
    Table {
        labels: vec!["method".to_owned()],
        groups: vec![Group::untitled(columns)],
        rows: rows.into_iter().map(row).collect(),
        ..Table::default()
    }
}

/// Column of a quantity, in a unit that suits its target.
struct FigureColumn {
    head: String,
    divisor: f64,
}

impl FigureColumn {
    fn of(FigureTarget { role, at }: FigureTarget) -> FigureColumn {
        let of_time = |name: &str| match at {
            _ if at < 1e4 => (format!("{name} µs"), 1.0),
            _ if at < 1e7 => (format!("{name} ms"), 1e3),
            _ => (format!("{name} s"), 1e6),
        };
        let (head, divisor) = match role {
            FigureRole::P50 => of_time("p50"),
            FigureRole::P99 => of_time("p99"),
            FigureRole::P999 => of_time("p99.9"),
            FigureRole::Bandwidth if at < 1e3 => ("Mb/s each".to_owned(), 1.0),
            FigureRole::Bandwidth => ("Gb/s each".to_owned(), 1e3),
            FigureRole::Iops => ("IOPS each".to_owned(), 1.0),
            FigureRole::HostCpu => ("host cores".to_owned(), 1.0),
        };
        FigureColumn { head, divisor }
    }

    fn value(&self, figure: Option<&ComparedFigure>) -> Value {
        let Some(figure) = figure else { return Value::Absent };
        let ends = figure.interval.map(|ends| ends.map(|end| end / self.divisor));
        Value::Estimate { mean: figure.mean / self.divisor, ends }
    }
}

fn verdict(row: &AdviceRow) -> String {
    let text = match &row.verdict {
        AdviceVerdict::Meets => "meets all requirements".to_owned(),
        AdviceVerdict::Undecided { open } => format!("undecided: {}", each(open, question)),
        AdviceVerdict::NotMeasured { open } => not_measured(open),
        AdviceVerdict::Fails { requirements } => format!("fails {}", each(requirements, |it| format!("--{it}"))),
        AdviceVerdict::Unavailable(unsupported) => format!("unavailable: {unsupported}"),
        AdviceVerdict::Excluded { .. } => return format!("excluded: {}", reasons(row)),
    };
    let remarks = row.remarks.iter().cloned();
    [text].into_iter().chain(sources(row)).chain(remarks).collect::<Vec<_>>().join("; ")
}

/// Returns why a method is excluded; empty if it isn't.
fn reasons(row: &AdviceRow) -> String {
    match &row.verdict {
        AdviceVerdict::Excluded { exclusions } => each(exclusions, exclusion),
        _ => String::new(),
    }
}

fn each<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join("; ")
}

fn question(OpenQuestion { requirement, cause, .. }: &OpenQuestion) -> String {
    match cause {
        OpenCause::Across => format!("the interval includes the target of --{requirement}"),
        OpenCause::NoInterval => format!("too few rounds for --{requirement}"),
        OpenCause::Extrapolated { from_guests } => {
            format!("--{requirement} was measured with {}", counted(*from_guests, "guest"))
        }
        OpenCause::NoFigure { refused: None } => format!("--{requirement} not measured"),
        OpenCause::NoFigure { refused: Some(reason) } => format!("--{requirement} not measured here ({reason})"),
        OpenCause::Condition { reason } => reason.clone(),
    }
}

fn not_measured(open: &[OpenQuestion]) -> String {
    let refused = open.iter().find_map(|question| match &question.cause {
        OpenCause::NoFigure { refused } => refused.as_ref(),
        _ => None,
    });
    refused.map_or("not measured".to_owned(), |reason| format!("not measured here ({reason})"))
}

/// An exclusion by a number names the numbers; any other one has a reason.
fn exclusion(Exclusion { requirement, required, reason, object, .. }: &Exclusion) -> String {
    match (requirement, object) {
        (Requirement::Guests, Some(object)) => format!("{required}, {object}"),
        _ => format!("{required} ({reason})"),
    }
}

fn sources(row: &AdviceRow) -> Option<String> {
    let figures: Vec<&ComparedFigure> = row.figures.iter().flatten().collect();
    let mut runs: Vec<&str> = figures.iter().map(|figure| figure.run.as_str()).collect();
    runs.dedup();
    let oldest = figures.iter().map(|figure| figure.age).max()?;
    let word = if runs.len() == 1 { "run" } else { "runs" };
    Some(format!("{word} {}, {}", runs.join(" and "), age(oldest)))
}

fn age(seconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let whole = UNITS.into_iter().map(|(unit, name)| (seconds / unit, name)).find(|(count, _)| *count > 0);
    match whole {
        Some((count, name)) => format!("{} old", counted(u32::try_from(count).unwrap_or(u32::MAX), name)),
        None => "just measured".to_owned(),
    }
}

fn note(report: &AdviceReport) -> Option<String> {
    let count = report.compared_figures;
    (count > 1).then(|| {
        format!(
            "The intervals of all {count} compared figures hold at the same time in 95 % of cases (Bonferroni), also for \
             a method that is chosen because it looks best."
        )
    })
}

/// Returns the commands that decide what is open, and what no command decides.
fn to_decide(report: &AdviceReport) -> Vec<SectionPart> {
    let commands: Vec<(String, String)> = report.rows.iter().flat_map(commands).collect();
    let undecided = by_text(report.rows.iter().flat_map(without_command));
    let lines: Vec<String> =
        undecided.into_iter().map(|(reason, methods)| format!("{}: {reason}", methods.join(", "))).collect();
    let commands = (!commands.is_empty()).then_some(SectionPart::List(commands));
    let others = (!lines.is_empty()).then(|| SectionPart::bullets(lines));
    commands.into_iter().chain(others).collect()
}

/// The method is a comment of the shell, which is not broken, so that a line can be copied as a whole.
fn commands(row: &AdviceRow) -> Vec<(String, String)> {
    let comment = format!("# {}", row.variant).replace(' ', "\u{a0}");
    let line = |command: &DecidingCommand| (waiting(command.seconds), format!("{command} {comment}"));
    row.commands.iter().map(line).collect()
}

fn without_command(row: &AdviceRow) -> Vec<(String, String)> {
    let open = match &row.verdict {
        AdviceVerdict::Undecided { open } | AdviceVerdict::NotMeasured { open } => open.as_slice(),
        _ => &[],
    };
    let reasons = open.iter().filter_map(|question| question.no_command.clone());
    reasons.map(|reason| (reason, row.variant.to_string())).collect()
}

fn changes(report: &AdviceReport) -> Vec<String> {
    let of_row = |row: &AdviceRow| {
        let method = row.variant.to_string();
        let change = move |relaxation: &Relaxation| (outcome(relaxation), method.clone());
        row.relaxations.iter().map(change).collect::<Vec<_>>()
    };
    let groups = by_text(report.rows.iter().flat_map(of_row));
    groups.into_iter().map(|(outcome, methods)| format!("{outcome}: {}", methods.join(", "))).collect()
}

fn outcome(Relaxation { to, meets }: &Relaxation) -> String {
    let text = to.to_string();
    let change = if text.starts_with("without") { text } else { format!("with {text}") };
    match meets {
        true => format!("{change}, all requirements are met by"),
        false => format!("{change}, measurements must decide on"),
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::{
        advice::{AdviceInput, FigureStanding, Inventory, MeasuredFigure, RequiredDevice, Requirements, advise},
        located::Source,
        method::MethodVariant,
        units::Mtu,
    };
    use vtax_stats::BoundedMean;

    use super::*;
    use crate::Options;

    const NOW: i64 = 1_800_000_000;

    fn figure(name: &str, role: FigureRole, [mean, low, high]: [f64; 3]) -> MeasuredFigure {
        let variant = MethodVariant::all().into_iter().find(|variant| variant.to_string() == name);
        MeasuredFigure {
            variant: variant.expect("a method"),
            device: RequiredDevice::Net,
            role,
            value: BoundedMean { mean, low, high, rounds: 20 },
            guests: 12,
            run: "t7-20270112-1".to_owned(),
            at: NOW - 3 * 86_400 - 5,
            standing: FigureStanding::Valid,
        }
    }

    fn report() -> AdviceReport {
        let text = "guests = 12\np99 = \"150us\"\nbandwidth = \"2G\"\nmigrate = \"live\"\n";
        let requirements = Requirements::parse(Source { name: "required.toml", text }).expect("good requirements");
        let inventory = Inventory {
            functions: Some(63),
            devices: Some(4),
            root_complexes: Some(2),
            wires: Some(0),
            driver: Some("igb".to_owned()),
            ..Inventory::default()
        };
        let alone = MeasuredFigure { guests: 1, ..figure("emulated", FigureRole::P99, [90.0, 88.0, 92.0]) };
        let figures = [
            figure("paravirtual:vhost", FigureRole::P99, [131.0, 125.0, 137.0]),
            figure("paravirtual:vhost", FigureRole::Bandwidth, [2400.0, 2300.0, 2500.0]),
            figure("paravirtual:vhost (macvtap)", FigureRole::P99, [148.0, 140.0, 156.0]),
            figure("paravirtual:userspace", FigureRole::P99, [280.0, 260.0, 300.0]),
            figure("paravirtual:userspace", FigureRole::Bandwidth, [2400.0, 2300.0, 2500.0]),
            figure("sr-iov", FigureRole::P99, [31.0, 30.0, 32.0]),
            figure("sr-iov", FigureRole::Bandwidth, [9000.0, 8900.0, 9100.0]),
            alone,
        ];
        advise(&AdviceInput {
            requirements: &requirements,
            inventory: &inventory,
            figures: &figures,
            mtu: Mtu::ETHERNET,
            cable: None,
            now: NOW,
        })
    }

    #[test]
    fn advice_is_a_table_with_commands_and_changes() {
        insta::assert_snapshot!(advice(&report()).draw(&Options { width: 120, ..Options::default() }).plain());
    }

    #[test]
    fn an_age_is_in_its_largest_unit() {
        assert_eq!([59, 60, 7_300, 259_205].map(age), ["just measured", "1 minute old", "2 hours old", "3 days old"]);
    }
}
