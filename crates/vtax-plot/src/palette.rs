//! Colours and font. A colour has one meaning in all charts of a report: a method, or a verdict.
//!
//! The colours of methods were found by a search. In each theme, the smallest distance between two of them in OKLab is
//! at least 0.09, with normal vision and with Machado's model of missing red, green or blue cones; none is nearly black
//! or white; and each has a contrast of 3:1 or more with the background (WCAG 1.4.11). Shapes and dashes carry the same
//! information without colour, and distinguish methods that share a colour.

use std::collections::HashMap;

use crate::inert::inert;

/// Font list. Browsers use the first font only if the reader has it; in PNGs, the embedded font is found by that name.
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

/// Colours of slots. The first is that of the baseline: a grey, because the others are compared with it.
const LIGHT: [&str; 8] = ["#737780", "#23a66f", "#d87a16", "#1b5794", "#df0723", "#911312", "#2b59fe", "#b777ce"];
const DARK: [&str; 8] = ["#9298a1", "#14885a", "#ef9642", "#8ed8f3", "#ea0024", "#d0dc5e", "#4588fd", "#bb2bbc"];

/// Slots of methods in the palette: a method has the same colour, shape and dashes in all charts of a report. Slot 0 is
/// the baseline's.
#[derive(Clone, Debug, Default)]
pub struct MethodSlots(HashMap<String, usize>);

impl MethodSlots {
    /// Assigns slots to methods.
    pub fn new(slots: impl IntoIterator<Item = (String, usize)>) -> MethodSlots {
        MethodSlots(slots.into_iter().map(|(name, slot)| (inert(&name), slot)).collect())
    }

    /// Returns the slot of each name. Names without one get the free slots after that of the baseline, in their order.
    pub(crate) fn of(&self, names: &[String]) -> Vec<usize> {
        let mut free = (1..).filter(|slot| !self.0.values().any(|taken| taken == slot));
        names.iter().map(|name| self.0.get(name).copied().or_else(|| free.next()).unwrap_or_default()).collect()
    }
}

/// Number of slots with separate colours.
pub(crate) const SLOTS: usize = LIGHT.len();

/// Verdict that has a colour. All readers can distinguish orange and blue, and text in them is readable.
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

/// Vega's names of shapes. There are as many as colours, but methods other than the baseline have one colour fewer, so
/// that two methods with the same colour have different shapes.
const SHAPES: [&str; 8] =
    ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"];

/// Dash patterns of lines, assigned like shapes.
const DASHES: [&[u32]; 8] =
    [&[1, 0], &[6, 3], &[2, 2], &[8, 3, 2, 3], &[12, 3], &[4, 2, 1, 2, 1, 2], &[10, 2, 4, 2], &[3, 5]];

/// Colour of text and axes: that of the page's text.
pub(crate) const INK: &str = "currentColor";

/// Background, for the outline of a shape. `Canvas` is the browser's own.
pub(crate) const GROUND: &str = "var(--plot-ground, Canvas)";

/// Returns the colour of a method's slot, which the page's style sets by theme; without a style, it is that of the
/// light theme. Slot 0 is the baseline's, and no other method has its grey.
pub(crate) fn colour(slot: usize) -> String {
    let index = if slot == 0 { 0 } else { 1 + (slot - 1) % (LIGHT.len() - 1) };
    format!("var(--plot-{}, {})", index + 1, LIGHT[index])
}

/// Returns the shape of a method's slot.
pub(crate) fn shape(slot: usize) -> &'static str {
    SHAPES[slot % SHAPES.len()]
}

/// Returns the dashes of a method's slot.
pub(crate) fn dash(slot: usize) -> &'static [u32] {
    DASHES[slot % DASHES.len()]
}

impl Theme {
    /// Returns the colour of text and axes.
    pub(crate) fn ink(self) -> &'static str {
        match self {
            Theme::Light => "#1b1d22",
            Theme::Dark => "#e6e7ea",
        }
    }

    /// Returns the colour of the background.
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

    /// Replaces all colours that depend on a page with those of this theme.
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

    /// Returns the relative luminance (WCAG).
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
    fn methods_that_share_a_colour_have_other_shapes_and_dashes() {
        for (one, other) in (1..57).flat_map(|one| (one + 1..57).map(move |other| (one, other))) {
            let alike = (colour(one), shape(one)) == (colour(other), shape(other));
            assert!(!alike && (colour(one), dash(one)) != (colour(other), dash(other)), "{one} {other}");
        }
    }

    #[test]
    fn a_method_keeps_its_slot_wherever_it_is() {
        let slots = MethodSlots::new([("native".into(), 0), ("vxlan".into(), 4)]);
        let names = |names: &[&str]| slots.of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&["vxlan", "native"]), [4, 0]);
        assert_eq!(names(&["a", "vxlan", "b", "c", "d"]), [1, 4, 2, 3, 5]);
    }

    #[test]
    fn a_theme_leaves_no_variable() {
        let verdicts = Meaning::ALL.map(Meaning::colour);
        let all: String = (0..8).map(colour).chain(verdicts).chain([INK.into(), GROUND.into()]).collect();
        assert!(!Theme::Dark.applied(&all).contains("var("));
    }
}
