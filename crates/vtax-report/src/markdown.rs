//! Reports as GitHub-flavoured Markdown.

use super::{
    view::{Align, DrawnPath, PathLink, PathStation, RowValues, Section, SectionPart, Table, TableRow, View},
    written::parts,
};

pub(crate) fn draw(view: &View) -> String {
    let mut text = if view.title.is_empty() { String::new() } else { format!("## {}\n", escaped(&view.title)) };
    view.answer.iter().for_each(|answer| text += &draw_section(answer));
    for warning in &view.warnings {
        text += &format!("\n> **{}**\n", escaped(warning));
    }
    if !view.facts.is_empty() {
        text.push('\n');
    }
    for (name, fact) in &view.facts {
        text += &format!("- **{name}**: {}\n", escaped(fact));
    }
    view.sections.iter().for_each(|section| text += &draw_section(section));
    text
}

fn draw_section(section: &Section) -> String {
    let mut text = match section.title.as_str() {
        "" => String::new(),
        title => format!("\n### {}\n", escaped(title)),
    };
    for part in &section.parts {
        text.push('\n');
        match part {
            SectionPart::Table(table) => text += &draw_table(table),
            SectionPart::Paragraph(paragraph) => text += &format!("{}\n", escaped(paragraph)),
            SectionPart::List(items) => items.iter().for_each(|item| text += &list_item(item)),
            SectionPart::Path(path) => text += &draw_path(path),
        }
    }
    text
}

fn draw_path(path: &DrawnPath) -> String {
    let mut text = format!("{}:\n\n", escaped(&path.title));
    for PathStation { domain, links } in &path.stations {
        text += &format!("1. {}\n", escaped(domain));
        for PathLink { name, facts } in links {
            text += &format!("   - {}: {}\n", escaped(name), escaped(&facts.join(", ")));
        }
    }
    if !path.remarks.is_empty() {
        text.push('\n');
    }
    path.remarks.iter().for_each(|remark| text += &format!("- {}\n", escaped(remark)));
    text
}

fn list_item((mark, text): &(String, String)) -> String {
    match mark.as_str() {
        "-" => format!("- {}\n", escaped(text)),
        mark => format!("- {mark} {}\n", escaped(text)),
    }
}

fn draw_table(table: &Table) -> String {
    let caption = if table.caption.is_empty() { String::new() } else { format!("**{}**\n\n", escaped(&table.caption)) };
    let heads = table.columns().map(|(group, column)| match group {
        "" => column.head.clone(),
        group => format!("{group}, {}", column.head),
    });
    let rules = table.columns().map(|(_, column)| match column.align {
        Align::Left | Align::Wrapped => ":--".to_owned(),
        Align::Right => "--:".to_owned(),
    });
    let labels = |text: fn(&String) -> String| table.labels.iter().map(text);
    let mut text = caption;
    text += &line(labels(String::clone).chain(heads));
    text += &line(labels(|_| ":--".to_owned()).chain(rules));
    let count = table.columns().count();
    table.rows.iter().chain(&table.foot).for_each(|row| text += &draw_row(row, count));
    text
}

fn draw_row(row: &TableRow, columns: usize) -> String {
    let fields = match &row.values {
        RowValues::Each(values) => values.iter().map(|value| joined(parts(value))).collect(),
        RowValues::None(text) => {
            let mut fields = vec![String::new(); columns];
            fields[0].clone_from(text);
            fields
        }
    };
    line(row.labels.iter().cloned().chain(fields))
}

fn joined(parts: [String; 3]) -> String {
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let fields: Vec<String> = fields.map(|field| escaped(&field)).collect();
    format!("| {} |\n", fields.join(" | "))
}

/// Escapes line breaks and characters with a meaning in Markdown.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for word in text.split_whitespace() {
        if !escaped.is_empty() {
            escaped.push(' ');
        }
        for character in word.chars() {
            if matches!(character, '|' | '*' | '_' | '`' | '<' | '\\') {
                escaped.push('\\');
            }
            escaped.push(character);
        }
    }
    escaped
}
