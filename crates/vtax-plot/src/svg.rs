//! The drawn picture: in a page, and as a file of its own.

use crate::{
    error::PlotError,
    measured::Heading,
    palette::{FONT, Theme},
    raster,
};

/// A picture for a page. Text and axes have the colour of the page's text, and the rest comes from CSS variables (see
/// [`page_style`](crate::page_style)). It is as wide as its place, and at most as wide as it was drawn.
#[derive(Clone, Debug)]
pub struct Svg {
    text: String,
    title: String,
    size: Size,
    /// What is between the tags of the root.
    inside: String,
}

/// In pixels.
#[derive(Clone, Copy, Debug)]
struct Size {
    width: f32,
    height: f32,
}

/// The room for the title in a file of its own.
const TITLE: f32 = 34.0;

impl Svg {
    /// Gives Vega's SVG a root of ours; none if it isn't as Vega writes it.
    pub(crate) fn of_vega(drawn: &str, heading: &Heading) -> Option<Svg> {
        let (root, rest) = drawn.split_once('>')?;
        let inside = slim(rest.strip_suffix("</svg>")?);
        let size = Size { width: attribute(root, "width")?, height: attribute(root, "height")? };
        let words = described(heading);
        let Size { width, height } = size;
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" width=\"100%\" \
             style=\"max-width:{width}px\" font-family=\"{FONT}\" viewBox=\"0 0 {width} {height}\">{words}{inside}</svg>"
        );
        Some(Svg { text, title: heading.title(), size, inside: format!("{words}{inside}") })
    }

    /// The element, to be put into a page.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same picture as a file, with its title above it and colours that depend on no page.
    pub fn standalone(&self, theme: Theme) -> Standalone {
        let Size { width, height } = self.size;
        let height = height + TITLE;
        let (ink, ground, title) = (theme.ink(), theme.ground(), escaped(&self.title));
        let inside = in_tags(&self.inside, |tag| theme.applied(tag));
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{height}\" \
             font-family=\"{FONT}\" viewBox=\"0 -{TITLE} {width} {height}\"><rect y=\"-{TITLE}\" width=\"{width}\" height=\"{height}\" \
             fill=\"{ground}\"/><text x=\"10\" y=\"-10\" font-size=\"15\" \
             font-weight=\"600\" fill=\"{ink}\">{title}</text>{inside}</svg>"
        );
        Standalone { text }
    }
}

/// A picture as a file of its own.
#[derive(Clone, Debug)]
pub struct Standalone {
    text: String,
}

impl Standalone {
    /// The text of the file.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same as PNG, `scale` pixels to each of the SVG. Text is in a font that vtax carries.
    ///
    /// # Errors
    ///
    /// If the picture would be too large.
    pub fn png(&self, scale: f32) -> Result<Vec<u8>, PlotError> {
        raster::png(&self.text, scale)
    }
}

fn described(heading: &Heading) -> String {
    format!("<title>{}</title><desc>{}</desc>", escaped(&heading.title()), escaped(&heading.summary()))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Leaves out what says nothing: a fifth to a half of the text. The whole is one picture to those who can't see it,
/// so its parts have no roles.
fn slim(drawn: &str) -> String {
    let font = format!(" font-family=\"{FONT}\"");
    let needless = [
        &font,
        " opacity=\"1\"",
        " aria-hidden=\"true\"",
        " role=\"graphics-object\"",
        " role=\"graphics-symbol\"",
        " aria-roledescription=\"group mark container\"",
        " pointer-events=\"none\"",
    ];
    let slimmer = in_tags(drawn, |tag| needless.iter().fold(tag.to_owned(), |tag, needless| tag.replace(needless, "")));
    slimmer
        .replace("<path class=\"foreground\" d=\"\" display=\"none\"/>", "")
        .replace("<path class=\"background\" d=\"M0,0h0v0h0Z\"/>", "")
}

/// A number of the root's tag.
fn attribute(root: &str, name: &str) -> Option<f32> {
    let (_, after) = root.split_once(&format!(" {name}=\""))?;
    after.split_once('"')?.0.parse().ok().filter(|size: &f32| size.is_finite() && *size > 0.0)
}

/// Changes what is between `<` and `>`, and leaves text alone: a name may contain what a tag does.
fn in_tags(svg: &str, change: impl Fn(&str) -> String) -> String {
    let mut changed = String::with_capacity(svg.len());
    for part in svg.split_inclusive('>') {
        let (text, tag) = part.split_at(part.find('<').unwrap_or(part.len()));
        changed.push_str(text);
        changed.push_str(&change(tag));
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_are_coloured() {
        let svg = "<text fill=\"currentColor\">currentColor</text>";
        assert_eq!(in_tags(svg, |tag| Theme::Light.applied(tag)), "<text fill=\"#1b1d22\">currentColor</text>");
    }

    #[test]
    fn another_form_is_refused() {
        let heading = Heading::default();
        for text in ["", "<svg>", "<svg width=\"NaN\" height=\"1\"></svg>", "<svg width=\"1\" height=\"0\"></svg>"] {
            assert!(Svg::of_vega(text, &heading).is_none(), "{text}");
        }
    }
}
