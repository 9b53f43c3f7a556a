//! Drawn picture, embedded in a page or as a standalone file.

use crate::{
    error::PlotError,
    measured::Heading,
    palette::{FONT, Theme},
    raster,
    sheet::wrapped,
};

/// Picture for a page. Text and axes have the colour of the page's text, and all others come from CSS variables (see
/// [`page_style`](crate::page_style)). It is as wide as its container, up to the width at which it was drawn.
#[derive(Clone, Debug)]
pub struct Svg {
    text: String,
    title: String,
    size: Size,
    /// Content of the root element.
    inside: String,
}

/// Size in pixels.
#[derive(Clone, Copy, Debug)]
struct Size {
    width: f32,
    height: f32,
}

/// Space around the title in a standalone file, and the height of each of its lines, in pixels.
const TITLE_PADDING: f32 = 14.0;
const TITLE_LINE: f32 = 20.0;
/// Mean width of a character of the title.
const TITLE_CHARACTER: f32 = 8.0;

impl Svg {
    /// Replaces the root of Vega's SVG; returns `None` if it has an unexpected form.
    pub(crate) fn of_vega(drawn: &str, heading: &Heading) -> Option<Svg> {
        let (root, rest) = drawn.split_once('>')?;
        let inside = slim(rest.strip_suffix("</svg>")?);
        let size = Size { width: attribute(root, "width")?, height: attribute(root, "height")? };
        let words = described(heading);
        let Size { width, height } = size;
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" width=\"100%\" \
             style=\"--plot-width:{width}px;max-width:{width}px\" font-family=\"{FONT}\" viewBox=\"0 0 {width} {height}\">{words}{inside}</svg>"
        );
        Some(Svg { text, title: heading.title(), size, inside: format!("{words}{inside}") })
    }

    /// Returns the element for a page.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the same picture as a standalone file, with its title above it and colours that depend on no page.
    pub fn standalone(&self, theme: Theme) -> Standalone {
        let Size { width, height } = self.size;
        let lines = wrapped(&self.title, ((width / TITLE_CHARACTER) as usize).saturating_sub(2));
        let above = TITLE_PADDING + TITLE_LINE * lines.len() as f32;
        let height = height + above;
        let line = |(number, text): (usize, &String)| {
            let y = TITLE_LINE * (number + 1) as f32 - above + 4.0;
            format!("<tspan x=\"10\" y=\"{y}\">{}</tspan>", escaped(text))
        };
        let title: String = lines.iter().enumerate().map(line).collect();
        let (ink, ground) = (theme.ink(), theme.ground());
        let inside = in_tags(&self.inside, |tag| theme.applied(tag));
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{height}\" \
             font-family=\"{FONT}\" viewBox=\"0 -{above} {width} {height}\"><rect y=\"-{above}\" width=\"{width}\" height=\"{height}\" \
             fill=\"{ground}\"/><text font-size=\"15\" font-weight=\"600\" fill=\"{ink}\">{title}</text>{inside}</svg>"
        );
        Standalone { text }
    }
}

/// Picture as a standalone file.
#[derive(Clone, Debug)]
pub struct Standalone {
    text: String,
}

impl Standalone {
    /// Returns the text of the file.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Converts the picture to PNG, with `scale` pixels per pixel of the SVG. Text is in a font that vtax includes.
    ///
    /// # Errors
    ///
    /// Fails if the picture would be too large.
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

/// Removes redundant attributes, which are a fifth to a half of the text. For screen readers the whole is one picture,
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

/// Returns a number in the root's tag.
fn attribute(root: &str, name: &str) -> Option<f32> {
    let (_, after) = root.split_once(&format!(" {name}=\""))?;
    after.split_once('"')?.0.parse().ok().filter(|size: &f32| size.is_finite() && *size > 0.0)
}

/// Changes the text between `<` and `>`, but no other: a name may look like a tag.
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
