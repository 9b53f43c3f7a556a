//! Conversion of SVG to PNG with an embedded font, so that pictures don't depend on the fonts of the system.

use std::sync::{Arc, LazyLock};

use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{Options, Tree, fontdb::Database},
};

use crate::error::PlotError;

/// Maximum number of pixels (160 MB of memory).
const MOST_PIXELS: f32 = 40e6;

/// Inter, reduced by `scripts/vega.sh` to the characters of European languages and of mathematics.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(include_bytes!("../fonts/Inter-Regular.ttf").to_vec());
    fonts.load_font_data(include_bytes!("../fonts/Inter-SemiBold.ttf").to_vec());
    fonts.set_sans_serif_family("Inter");
    Arc::new(fonts)
});

pub(crate) fn png(svg: &str, scale: f32) -> Result<Vec<u8>, PlotError> {
    let options = Options { fontdb: Arc::clone(&FONTS), font_family: "Inter".to_owned(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(refused)?;
    let mut pixmap = canvas(&tree, scale)?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    pixmap.encode_png().map_err(refused)
}

fn canvas(tree: &Tree, scale: f32) -> Result<Pixmap, PlotError> {
    let (width, height) = ((tree.size().width() * scale).ceil(), (tree.size().height() * scale).ceil());
    let too_large = || PlotError::TooManyPixels { width, height };
    // NaN is refused like a scale that is too large.
    let fits = width >= 1.0 && height >= 1.0 && width * height <= MOST_PIXELS;
    fits.then(|| Pixmap::new(width as u32, height as u32)).flatten().ok_or_else(too_large)
}

fn refused(error: impl ToString) -> PlotError {
    PlotError::Raster { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_scales_are_refused() {
        let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"10\" height=\"10\"/>";
        for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e6] {
            assert!(matches!(png(svg, scale), Err(PlotError::TooManyPixels { .. })), "{scale}");
        }
        assert!(png(svg, 2.0).is_ok());
    }
}
