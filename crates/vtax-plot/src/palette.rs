//! Colours and font. A colour has one meaning in all charts of a report: a method, or a verdict.
//!
//! The colours of methods are the result of a search: in each theme the smallest distance between two of them in OKLab,
//! with normal vision and with Machado's model of missing red, green or blue cones, is at least 0.09; none is nearly
//! black or white; and each contrasts with the background by 3:1 or more (WCAG 1.4.11). Shapes and dashes carry the same
//! information without colour, and distinguish methods that share a colour.

/// Font list. Browsers have the first font only if the reader does; the PNG's fonts are found by it.
pub(crate) const FONT: &str =
    "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

/// Theme of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Dark on white; also for paper.
    Light,
    /// Light on nearly black.
    Dark,
}

/// The first is the baseline's: a grey, because it is what the others are compared with.
const LIGHT: [&str; 8] = ["#737780", "#2b59fe", "#d87a16", "#23a66f", "#b777ce", "#1b5794", "#df0723", "#911312"];
const DARK: [&str; 8] = ["#9298a1", "#4588fd", "#ef9642", "#14885a", "#bb2bbc", "#8ed8f3", "#ea0024", "#d0dc5e"];

/// Verdict that has a colour. Orange and blue stay apart for all readers, and text in them is readable.
#[derive(Clone, Copy)]
pub(crate) enum Meaning {
    Worse,
    Better,
}

impl Meaning {
    const ALL: [Meaning; 2] = [Meaning::Worse, Meaning::Better];

    fn name(self) -> &'static str {
        match self {
            Meaning::Worse => "worse",
            Meaning::Better => "better",
        }
    }

    /// Returns a colour that the page's style sets by theme, like [`colour`].
    pub(crate) fn colour(self) -> String {
        format!("var(--plot-{}, {})", self.name(), self.in_theme(Theme::Light))
    }

    fn in_theme(self, theme: Theme) -> &'static str {
        match (self, theme) {
            (Meaning::Worse, Theme::Light) => "#b84300",
            (Meaning::Worse, Theme::Dark) => "#ffa05c",
            (Meaning::Better, Theme::Light) => "#1f5fd0",
            (Meaning::Better, Theme::Dark) => "#7ab0ff",
        }
    }
}

/// Vega's names of shapes, in the order of the colours.
pub(crate) const SHAPES: [&str; 8] =
    ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"];

/// Dash patterns of lines, in the order of the colours.
pub(crate) const DASHES: [&[u32]; 8] =
    [&[1, 0], &[6, 3], &[2, 2], &[8, 3, 2, 3], &[12, 3], &[4, 2, 1, 2, 1, 2], &[10, 2, 4, 2], &[3, 5]];

/// Colour of text and axes: that of the page's text.
pub(crate) const INK: &str = "currentColor";

/// Background, for cut-outs of a shape. `Canvas` is the browser's own.
pub(crate) const GROUND: &str = "var(--plot-ground, Canvas)";

/// Returns the colour of a method's slot, which the page's style sets by theme; without one, it is the light theme's.
/// Slot 0 is the baseline's, and no other method has its grey.
pub(crate) fn colour(slot: usize) -> String {
    let index = if slot == 0 { 0 } else { 1 + (slot - 1) % (LIGHT.len() - 1) };
    format!("var(--plot-{}, {})", index + 1, LIGHT[index])
}

impl Theme {
    /// Colour of text and axes.
    pub(crate) fn ink(self) -> &'static str {
        match self {
            Theme::Light => "#1b1d22",
            Theme::Dark => "#e6e7ea",
        }
    }

    /// Colour of the background.
    pub(crate) fn ground(self) -> &'static str {
        match self {
            Theme::Light => "#ffffff",
            Theme::Dark => "#16181d",
        }
    }

    fn colours(self) -> [&'static str; 8] {
        match self {
            Theme::Light => LIGHT,
            Theme::Dark => DARK,
        }
    }

    /// Replaces all colours that depend on a page by this theme's.
    pub(crate) fn applied(self, text: &str) -> String {
        let text = text.replace(INK, self.ink()).replace(GROUND, self.ground());
        let text = Meaning::ALL.into_iter().fold(text, |text, one| text.replace(&one.colour(), one.in_theme(self)));
        self.colours().iter().enumerate().fold(text, |text, (index, own)| text.replace(&colour(index), own))
    }

    /// Returns the variables of this theme as CSS declarations.
    pub(crate) fn variables(self) -> String {
        let colours: String =
            self.colours().iter().enumerate().map(|(index, own)| format!("--plot-{}:{own};", index + 1)).collect();
        let verdicts = Meaning::ALL.map(|one| format!("--plot-{}:{};", one.name(), one.in_theme(self))).concat();
        format!("{colours}{verdicts}--plot-ground:{};--plot-ink:{}", self.ground(), self.ink())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance (WCAG).
    fn luminance(hex: &str) -> f64 {
        let channel = |at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")) / 255.0;
        let linear = |c: f64| if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        0.2126 * linear(channel(1)) + 0.7152 * linear(channel(3)) + 0.0722 * linear(channel(5))
    }

    fn contrast(own: &str, theme: Theme) -> f64 {
        let (a, b) = (luminance(own), luminance(theme.ground()));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn each_colour_contrasts_with_the_background() {
        for theme in [Theme::Light, Theme::Dark] {
            for own in theme.colours() {
                assert!(contrast(own, theme) >= 3.0, "{own} {}", contrast(own, theme));
                // Nearly black on white, or nearly white on black, looks like no colour.
                assert!(contrast(own, theme) <= 13.0, "{own} {}", contrast(own, theme));
            }
            for meaning in Meaning::ALL {
                let own = meaning.in_theme(theme);
                assert!(contrast(own, theme) >= 4.5, "{own} {}", contrast(own, theme));
            }
        }
    }

    #[test]
    fn only_the_baseline_is_grey() {
        assert!((1..30).all(|slot| colour(slot) != colour(0)));
        assert_eq!(colour(8), colour(1));
    }

    #[test]
    fn a_theme_leaves_no_variable() {
        let verdicts = Meaning::ALL.map(Meaning::colour);
        let all: String = (0..8).map(colour).chain(verdicts).chain([INK.into(), GROUND.into()]).collect();
        assert!(!Theme::Dark.applied(&all).contains("var("));
    }
}
