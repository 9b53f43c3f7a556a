//! Report of a study: for each measurement mode the cost of each method compared with the baseline, then what could not
//! be measured, and the answer in sentences.

use vtax_model::{
    foreign::ForeignText,
    published::Published,
    result::{CellRecord, ResultDocument},
    study::StepRecord,
};

use super::{
    Format, Options, answer, bars,
    blocks::Reported,
    detail, failures, forest, heading, host_cpu, machine, measure, modes,
    notes::Notes,
    pairs, path, peak, placement, reading,
    record::is_of_one_path,
    series, stages,
    view::{Section, SectionPart, View},
};

pub(crate) fn view(report: &Reported<'_>, options: &Options) -> View {
    let document = report.document;
    let wanted = options.published.unwrap_or_else(|| is_worth_it(document));
    let published = wanted.then(|| Published::of(&document.study)).flatten();
    let mut notes = Notes::default();
    let mut sections: Vec<Section> = bars::section(document).into_iter().collect();
    if options.bars && options.format == Format::Table {
        sections.extend(forest::section(report, options.width));
    }
    match is_of_one_path(document) {
        true => sections.extend(measure::sections(document, options, &mut notes)),
        false => sections.extend(modes::sections(report, options, published.is_some(), &mut notes)),
    }
    if let Some(published) = &published {
        sections.extend(peak::section(document, published));
    }
    sections.extend([stages::section(report), pairs::section(document, options.detail)].into_iter().flatten());
    sections.extend(path::ends(document, options.detail));
    sections.extend(steps(document));
    if options.detail {
        sections.extend(detailed(report, options, &mut notes).into_iter().map(Section::folded));
    }
    sections.extend(notes.section());
    sections.extend(failures::section(document));
    sections.extend(reading::section(report, published.as_ref(), options));
    View {
        title: document.heading(),
        answer: answer::section(report, options.detail),
        warnings: heading::warnings(report),
        facts: heading::facts(document, options.detail),
        sections,
    }
    .with_caveat(document.caveat.as_ref().map(ForeignText::to_string).as_deref())
}

/// Changes that were in effect while the rows of each step were measured.
fn steps(document: &ResultDocument) -> Option<Section> {
    let of_step = |step: &StepRecord| {
        let changes: Vec<String> = step.changes.iter().map(ToString::to_string).collect();
        (format!("+{}", step.step), changes.join("; "))
    };
    let items: Vec<(String, String)> = document.steps.iter().map(of_step).collect();
    let parts = if items.is_empty() { Vec::new() } else { vec![SectionPart::List(items)] };
    Section::new("Changes per step (reverted afterwards)", parts).map(Section::folded)
}

/// Returns `true` if a row that is compared with the baseline was measured and has published figures.
fn is_worth_it(document: &ResultDocument) -> bool {
    let others = document.cells.iter().filter(|record| record.cell.row != document.baseline);
    let has_published = |record: &CellRecord| record.published.is_some() || !record.published_on.is_empty();
    let mut measured = others.filter(|record| record.summary.is_some());
    let whole = || Published::of(&document.study).is_some_and(|published| published.is_of_whole_study());
    measured.clone().any(has_published) || measured.next().is_some() && whole()
}

fn detailed(report: &Reported<'_>, options: &Options, notes: &mut Notes) -> Vec<Section> {
    let document = report.document;
    let mut sections: Vec<Section> = host_cpu::section(document).into_iter().collect();
    match is_of_one_path(document) {
        true => sections.extend(measure::detail(document)),
        false => {
            sections.extend(modes::other_metrics(report, options, notes));
            sections.extend(report.blocks.iter().filter_map(detail::section));
        }
    }
    sections.extend(detail::noise_floor(report));
    let others = [series::section, path::section, placement::section, machine::section];
    sections.extend(others.into_iter().filter_map(|section| section(document)));
    sections
}
