//! `vtax report`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use vtax_model::result::ResultDocument;
use vtax_report::{self as report, Plotter, Theme};
use vtax_store::Store;

use super::{Locations, results::show, run::OutputOptions};
use crate::exit::{Blamed, Coded, Exit, Stop};

/// Pixels of a PNG per pixel of the chart.
const PNG_SCALE: f32 = 2.0;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Runs: `last`, ids, or prefixes of ids, e.g. demo-20260102
    #[arg(value_name = "ID", default_value = "last")]
    ids: Vec<String>,
    /// Self-contained HTML page to write, e.g. result.html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory for the charts as SVG files, e.g. charts
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Directory for the charts as PNG files, e.g. charts
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
}

pub(crate) fn report(args: &ReportArgs, places: &Locations) -> Result<Exit, Stop> {
    let (dir, options) = (places.state_dir()?, args.output.options());
    if args.html.is_none() && args.svg.is_none() && args.png.is_none() {
        args.ids.iter().try_for_each(|id| show(&dir, id, &options))?;
        return Ok(Exit::Done);
    }
    let documents = args.ids.iter().map(|id| Store::reading(&dir, |store| store.document(id)));
    let documents: Vec<ResultDocument> = documents.collect::<Result<_, _>>()?;
    if let Some(file) = &args.html {
        let page = report::page(&documents, &options, &[]).or_infrastructure()?;
        write("--html", file, page.as_bytes())?;
        tell!("wrote {} ({} kB)", file.display(), page.len().div_ceil(1000));
    }
    if args.svg.is_some() || args.png.is_some() {
        documents.iter().try_for_each(|document| pictures(args, document))?;
    }
    Ok(Exit::Done)
}

pub(super) fn write(option: &str, file: &Path, bytes: &[u8]) -> Result<(), Stop> {
    fs::write(file, bytes).coded("file", || format!("{option}: writing {}", file.display())).or_input()
}

/// Writes each chart of a run to separate files, named after the run's id, its place and its kind. Titles state findings,
/// so they differ from run to run.
fn pictures(args: &ReportArgs, document: &ResultDocument) -> Result<(), Stop> {
    let plotter = Plotter::new().or_infrastructure()?;
    let charts = report::charts(document);
    for (index, chart) in charts.iter().enumerate() {
        let name = file_name(&format!("{}-{:02}-{}", document.id, index + 1, chart.kind()));
        let picture = plotter.svg(chart).or_infrastructure()?.standalone(Theme::Light);
        if let Some(folder) = &args.svg {
            write("--svg", &made(folder)?.join(format!("{name}.svg")), picture.as_str().as_bytes())?;
        }
        if let Some(folder) = &args.png {
            let png = picture.png(PNG_SCALE).or_infrastructure()?;
            write("--png", &made(folder)?.join(format!("{name}.png")), &png)?;
        }
    }
    tell!("wrote {} of {}", charts_counted(charts.len()), document.id);
    Ok(())
}

pub(super) fn charts_counted(count: usize) -> String {
    if count == 1 { "1 chart".to_owned() } else { format!("{count} charts") }
}

pub(super) fn made(folder: &Path) -> Result<&Path, Stop> {
    fs::create_dir_all(folder).coded("file", || format!("creating the directory {}", folder.display())).or_input()?;
    Ok(folder)
}

/// Returns the text without characters that have a meaning in a shell or a path.
pub(super) fn file_name(text: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let name: String = text.chars().map(safe).collect();
    name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_makes_a_harmless_file_name() {
        assert_eq!(file_name("demo-1: RTT, TCP (the path's own cost)"), "demo-1-rtt-tcp-the-path-s-own-cost");
        assert_eq!(file_name("../../etc/passwd\0"), "etc-passwd");
    }
}
