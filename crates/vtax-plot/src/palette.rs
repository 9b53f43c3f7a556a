//! Colours and font. The colours also differ in lightness, so that readers with colour vision deficiency can
//! distinguish them.
//!
//! They are the result of a search: in each theme the smallest distance between two of them in OKLab, with normal
//! vision and with Machado's model of missing red, green or blue cones, is at least 0.08; and each contrasts with the
//! background by 3:1 or more (WCAG 1.4.11). Shapes and dashes carry the same information without colour.

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

const LIGHT: [&str; 8] = ["#4d6ce0", "#d07b00", "#13361e", "#864077", "#515002", "#420366", "#0a97c1", "#a6625a"];
const DARK: [&str; 8] = ["#7898fb", "#e8902c", "#b6f3c3", "#9b6d78", "#fdd506", "#7a68dc", "#88cef6", "#c4959d"];

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

/// Returns a colour that the page's style sets by theme; without one, it is the light theme's.
pub(crate) fn colour(index: usize) -> String {
    let index = index % LIGHT.len();
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
        self.colours().iter().enumerate().fold(text, |text, (index, own)| text.replace(&colour(index), own))
    }

    /// Returns the variables of this theme as CSS declarations.
    pub(crate) fn variables(self) -> String {
        let colours: String =
            self.colours().iter().enumerate().map(|(index, own)| format!("--plot-{}:{own};", index + 1)).collect();
        format!("{colours}--plot-ground:{};--plot-ink:{}", self.ground(), self.ink())
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

    #[test]
    fn each_colour_contrasts_with_the_background() {
        for theme in [Theme::Light, Theme::Dark] {
            for own in theme.colours() {
                let (a, b) = (luminance(own), luminance(theme.ground()));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= 3.0, "{own} {contrast}");
            }
        }
    }

    #[test]
    fn a_theme_leaves_no_variable() {
        let all: String = (0..8).map(colour).chain([INK.into(), GROUND.into()]).collect();
        assert!(!Theme::Dark.applied(&all).contains("var("));
    }
}
