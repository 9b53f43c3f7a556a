//! Reports as text: aligned columns, not wider than the terminal where possible.

mod table;

use super::{
    styled::{Line, Style, StyledText, line},
    view::{DrawnPath, Section, SectionPart, View},
    written::unbroken,
};

/// Gap between a name and its text.
const GAP: usize = 2;

pub(crate) fn draw(view: &View, width: usize) -> StyledText {
    let mut blocks: Vec<Vec<Line>> = Vec::new();
    if !view.title.is_empty() {
        blocks.push(vec![line(&view.title, Style::Title), line("=".repeat(length(&view.title)), Style::Title)]);
    }
    blocks.extend(view.answer.iter().map(|answer| section(answer, width)));
    let warning = |text: &String| styled(hanging("!", text, GAP, width), Style::Warning);
    blocks.extend(view.warnings.iter().map(warning));
    let names = view.facts.iter().map(|(name, _)| length(name)).max().unwrap_or(0);
    let fact = |(name, text): &(&str, String)| styled(hanging(name, text, names + GAP, width), Style::Plain);
    blocks.extend(Some(view.facts.iter().flat_map(fact).collect::<Vec<Line>>()).filter(|lines| !lines.is_empty()));
    blocks.extend(view.sections.iter().map(|part| section(part, width)));
    StyledText::of_lines(blocks.join(&Line::new()))
}

fn section(section: &Section, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    if !section.title.is_empty() {
        let titled = wrapped(&section.title, width);
        let longest = titled.iter().map(|line| length(line)).max().unwrap_or(0);
        lines.extend(styled(titled.into_iter().chain(["-".repeat(longest)]), Style::Title));
    }
    let parts: Vec<Vec<Line>> = section.parts.iter().map(|part| draw_part(part, width)).collect();
    lines.extend(parts.join(&Line::new()));
    lines
}

fn draw_part(part: &SectionPart, width: usize) -> Vec<Line> {
    match part {
        SectionPart::Table(table) => table::draw(table, width),
        SectionPart::Paragraph(text) => styled(wrapped(text, width), Style::Plain),
        SectionPart::List(items) => {
            let marks = items.iter().map(|(mark, _)| length(mark)).max().unwrap_or(0);
            let item = |(mark, text): &(String, String)| hanging(mark, text, marks + 1, width);
            styled(items.iter().flat_map(item), Style::Plain)
        }
        SectionPart::Path(path) => draw_path(path, width),
    }
}

/// Draws each domain with its links, one below the other.
fn draw_path(path: &DrawnPath, width: usize) -> Vec<Line> {
    const LEAD: usize = 2;
    let domains = path.stations.iter().map(|station| length(&station.domain)).max().unwrap_or(0) + GAP;
    let links = path.stations.iter().flat_map(|station| &station.links);
    let names = links.map(|link| length(&link.name)).max().unwrap_or(0) + GAP;
    let indent = LEAD + domains + names;
    let mut lines = styled(wrapped(&format!("{}:", path.title), width), Style::Plain);
    for (index, station) in path.stations.iter().enumerate() {
        lines.extend((index > 0).then(|| line(format!("{:LEAD$}↓", ""), Style::Faint)));
        for (index, link) in station.links.iter().enumerate() {
            let domain = if index == 0 { station.domain.as_str() } else { "" };
            let mark = format!("{:LEAD$}{domain:<domains$}{}", "", link.name);
            lines.extend(styled(hanging(&mark, &link.facts.join(", "), indent, width), Style::Plain));
        }
    }
    lines.extend(path.remarks.iter().flat_map(|remark| styled(hanging("-", remark, GAP, width), Style::Plain)));
    lines
}

fn styled(lines: impl IntoIterator<Item = String>, style: Style) -> Vec<Line> {
    lines.into_iter().map(|text| line(text, style)).collect()
}

/// Mark or name, and next to it a text that may need more lines.
fn hanging(mark: &str, text: &str, indent: usize, width: usize) -> Vec<String> {
    let lines = wrapped(text, width.saturating_sub(indent));
    let lead = |index| if index == 0 { mark } else { "" };
    lines.iter().enumerate().map(|(index, line)| format!("{:<indent$}{line}", lead(index))).collect()
}

/// Wraps text between words; a word longer than a line stays whole, and so do a percentage and an interval.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    const HOLD: char = '\u{a0}';
    let text = unbroken(text, HOLD);
    let mut lines = vec![String::new()];
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let line = lines.last_mut().expect("starts with one");
        if line.is_empty() {
            line.push_str(word);
        } else if length(line) + 1 + length(word) <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.iter().map(|line| line.replace(HOLD, " ")).collect()
}

/// Length in columns: each character that reports use takes one.
fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_and_a_percentage_stay_in_one_piece() {
        assert_eq!(wrapped("costs +4 % [+3, +5] here", 14), ["costs +4 %", "[+3, +5] here"]);
        assert_eq!(wrapped("a, b [1, 2], c", 8), ["a, b", "[1, 2],", "c"]);
    }
}
