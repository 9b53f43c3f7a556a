//! The capabilities in `docs/methods.md`: generated from the table, and compared with it.

use std::fmt::Write;

use vtax_model::method::{Advice, Capability, CapabilityAnswer, Family, MethodVariant};

use super::generated;

#[test]
fn the_page_has_the_table_of_capabilities() {
    let wanted = format!("{}\n{}\n{}", families(), table(), reasons());
    generated::check("methods.md", "table of capabilities", &wanted);
}

fn families() -> String {
    let mut text =
        "| family | advantages | disadvantages | choose it when | avoid it when |\n|---|---|---|---|---|\n".to_owned();
    for family in Family::ALL {
        let Advice { pros, cons, choose_when, avoid_when } = family.advice();
        let methods: Vec<String> = family.methods().iter().map(|method| format!("[`{method}`](#{method})")).collect();
        let sides = [pros, cons, choose_when, avoid_when].map(|side| side.join(";<br>"));
        let _ = writeln!(text, "| {}: {} | {} |", family.title(), methods.join(", "), sides.join(" | "));
    }
    text
}

fn table() -> String {
    let titles = Capability::ALL.map(Capability::title);
    let mut text = format!("| method | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
    for variant in MethodVariant::all() {
        let words = variant.capabilities().answers().map(|answer| answer.word);
        let _ = writeln!(text, "| {variant} | {} |", words.join(" | "));
    }
    text
}

/// Returns each reason once, with the methods that it applies to.
fn reasons() -> String {
    let all = MethodVariant::all();
    let mut text = String::new();
    for capability in Capability::ALL {
        let mut reasons: Vec<(CapabilityAnswer, Vec<String>)> = Vec::new();
        for variant in &all {
            let answer = variant.capabilities().answer(capability);
            match reasons.iter_mut().find(|(known, _)| *known == answer) {
                Some((_, methods)) => methods.push(variant.to_string()),
                None => reasons.push((answer, vec![variant.to_string()])),
            }
        }
        let title = capability.title();
        let (first, rest) = title.split_at(1);
        let _ = writeln!(text, "**{}{rest}**\n", first.to_uppercase());
        for (CapabilityAnswer { word, reason, .. }, methods) in
            reasons.iter().filter(|(answer, _)| !answer.reason.is_empty())
        {
            text += &wrapped(&format!("- **{word}** for {}: {reason}.", methods.join(", ")));
        }
        text += "\n";
    }
    text
}

/// Breaks a bullet between words, as wide as the other pages.
fn wrapped(bullet: &str) -> String {
    const WIDTH: usize = 120;
    let mut text = String::new();
    let mut column = 0;
    for word in bullet.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            text += "\n ";
            column = 1;
        }
        if column > 0 {
            text += " ";
            column += 1;
        }
        text += word;
        column += length;
    }
    text + "\n"
}
