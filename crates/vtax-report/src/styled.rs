//! Text with styles, which the one who prints it makes colours of.

/// A report as text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StyledText(pub Vec<StyledPiece>);

/// A piece of a line, or a line break.
#[derive(Debug, Clone, PartialEq)]
pub struct StyledPiece {
    /// The text.
    pub text: String,
    /// What it is.
    pub style: Style,
}

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Nothing in particular.
    #[default]
    Plain,
    /// A title or the head of a table.
    Title,
    /// What the reader must know before any figure.
    Warning,
    /// A row that does worse than the baseline.
    Worse,
    /// A row that does better than the baseline.
    Better,
    /// What is not shown or not there.
    Faint,
}

/// The pieces of a line.
pub(crate) type Line = Vec<StyledPiece>;

impl StyledPiece {
    pub(crate) fn new(text: impl Into<String>, style: Style) -> StyledPiece {
        StyledPiece { text: text.into(), style }
    }
}

impl From<String> for StyledText {
    fn from(text: String) -> StyledText {
        StyledText(line(text, Style::Plain))
    }
}

impl StyledText {
    pub(crate) fn of_lines(lines: impl IntoIterator<Item = Line>) -> StyledText {
        let ended = |line: Line| trimmed(line).into_iter().chain([StyledPiece::new("\n", Style::Plain)]);
        StyledText(lines.into_iter().flat_map(ended).collect())
    }

    /// The text without its styles.
    pub fn plain(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }
}

/// The line without blanks at its end.
fn trimmed(mut line: Line) -> Line {
    while let Some(last) = line.last_mut() {
        let length = last.text.trim_end().len();
        last.text.truncate(length);
        if length > 0 {
            break;
        }
        line.pop();
    }
    line
}

/// A line of one style.
pub(crate) fn line(text: impl Into<String>, style: Style) -> Line {
    vec![StyledPiece::new(text, style)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_ends_in_blanks() {
        let lines =
            [vec![StyledPiece::new("a ", Style::Title), StyledPiece::new("  ", Style::Plain)], line(" ", Style::Plain)];
        assert_eq!(StyledText::of_lines(lines).plain(), "a\n\n");
    }
}
