//! Draws one chart of each kind for visual inspection: `cargo run --release -p vtax-plot --example gallery -- FOLDER`
//!
//! Writes an SVG and a PNG of each chart in both themes, and a page with all of them live, to the directory, and prints
//! the time taken.

use std::{env, error::Error, fs, path::Path, time::Instant};

use jiff::Timestamp;
use vtax_plot::*;

#[path = "../src/tests/samples.rs"]
mod samples;

fn at(day: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + day * 86_400).unwrap_or_default()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("usage: gallery FOLDER")?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let begin = Instant::now();
    let plotter = Plotter::new()?;
    println!("library loaded in {:?}", begin.elapsed());
    let mut figures = String::new();
    for (name, chart) in samples::all() {
        figures += &figure(&plotter, name, &chart, folder)?;
    }
    fs::write(folder.join("page.html"), page(&figures))?;
    Ok(())
}

/// Writes the files of a chart, and returns its element of the page.
fn figure(plotter: &Plotter, name: &str, chart: &Chart, folder: &Path) -> Result<String, Box<dyn Error>> {
    let begin = Instant::now();
    let svg = plotter.svg(chart)?;
    let drawn = begin.elapsed();
    for (theme, suffix) in [(Theme::Light, "light"), (Theme::Dark, "dark")] {
        let file = svg.standalone(theme);
        fs::write(folder.join(format!("{name}-{suffix}.svg")), file.as_str())?;
        fs::write(folder.join(format!("{name}-{suffix}.png")), file.png(2.0)?)?;
    }
    let spec = plotter.page_spec(chart)?;
    let (svg_size, spec_size) = (svg.as_str().len(), spec.to_string().len());
    println!("{name}: {drawn:?}, SVG {svg_size} bytes, specification {spec_size} bytes, all {:?}", begin.elapsed());
    Ok(format!("<h2>{name}</h2>{}", spec.figure(&svg)))
}

fn page(figures: &str) -> String {
    let (style, hash) = (page_style(), page_script_hash());
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Gallery</title>\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src '{hash}'\">\
         <style>{style} body{{font-family:system-ui,sans-serif;color:var(--plot-ink);background:var(--plot-ground);\
         margin:1rem}}</style></head><body>{figures}<script>{PAGE_SCRIPT}</script></body></html>"
    )
}
