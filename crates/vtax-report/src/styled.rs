//! Text with styles, which the printer turns into colours.

/// Report as text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StyledText(pub Vec<StyledPiece>);

/// Piece of a line, or a line break.
#[derive(Debug, Clone, PartialEq)]
pub struct StyledPiece {
    /// Characters to print; `\n` breaks the line.
    pub text: String,
    /// Meaning of the piece, from which a terminal chooses its colour.
    pub style: Style,
}

/// Meaning of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Plain text.
    #[default]
    Plain,
    /// Title or table heading.
    Title,
    /// Warning that applies to all figures.
    Warning,
    /// Row that performs worse than the baseline.
    Worse,
    /// Row that performs better than the baseline.
    Better,
    /// Value that is absent, or a difference that is not shown.
    Faint,
}

/// Pieces of a line.
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

    /// Creates a line of one style, without a line break.
    pub fn line(text: impl Into<String>, style: Style) -> StyledText {
        StyledText(line(text, style))
    }

    /// Splits the text into lines, without their line breaks.
    pub fn lines(&self) -> Vec<StyledText> {
        let mut lines: Vec<StyledText> = vec![StyledText::default()];
        for StyledPiece { text, style } in &self.0 {
            for (nth, part) in text.split('\n').enumerate() {
                if nth > 0 {
                    lines.push(StyledText::default());
                }
                let last = lines.last_mut().expect("starts with one");
                last.0.extend((!part.is_empty()).then(|| StyledPiece::new(part, *style)));
            }
        }
        // The text ends in a line break.
        if lines.last().is_some_and(|line| line.0.is_empty()) {
            lines.pop();
        }
        lines
    }

    /// Joins texts with a line break between each two.
    pub fn joined(lines: impl IntoIterator<Item = StyledText>) -> StyledText {
        let lines: Vec<Line> = lines.into_iter().map(|line| line.0).collect();
        StyledText(lines.join(&StyledPiece::new("\n", Style::Plain)))
    }

    /// Returns the first columns of a line.
    pub fn cut(self, columns: usize) -> StyledText {
        let mut left = columns;
        let piece = |StyledPiece { text, style }| {
            let kept: String = text.chars().take(left).collect();
            left -= kept.chars().count();
            StyledPiece { text: kept, style }
        };
        StyledText(self.0.into_iter().map(piece).filter(|piece| !piece.text.is_empty()).collect())
    }

    /// Returns the text without its styles.
    pub fn plain(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }
}

/// Removes trailing blanks from a line.
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

/// Creates a line of one style.
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

    #[test]
    fn a_text_is_its_lines() {
        let text =
            StyledText::of_lines([line("one", Style::Title), line("", Style::Plain), line("three", Style::Plain)]);
        let lines = text.lines();
        assert_eq!(lines.iter().map(StyledText::plain).collect::<Vec<_>>(), ["one", "", "three"]);
        assert_eq!(StyledText::joined(lines).plain() + "\n", text.plain());
        assert_eq!(StyledText::line("µs µs", Style::Plain).cut(4).plain(), "µs µ");
    }
}
