//! `vtax report`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use vtax_model::result::ResultDocument;
use vtax_report as report;
use vtax_store::Store;

use super::{Locations, results::show, run::OutputOptions};
use crate::exit::{Blamed, Coded, Exit, Stop};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The runs: ids, beginnings of ids, or `last`
    #[arg(value_name = "ID", default_value = "last")]
    ids: Vec<String>,
    /// Write one HTML file that opens from disk and needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
}

pub(crate) fn report(args: &ReportArgs, places: &Locations) -> Result<Exit, Stop> {
    let (dir, options) = (places.state_dir()?, args.output.options());
    match &args.html {
        Some(file) => {
            let documents = args.ids.iter().map(|id| Store::reading(&dir, |store| store.document(id)));
            let documents: Vec<ResultDocument> = documents.collect::<Result<_, _>>()?;
            write(file, &report::page(&documents, &options).or_infrastructure()?)?;
        }
        None => args.ids.iter().try_for_each(|id| show(&dir, id, &options))?,
    }
    Ok(Exit::Done)
}

fn write(file: &Path, text: &str) -> Result<(), Stop> {
    fs::write(file, text).coded("file", || format!("--html: writing {}", file.display())).or_input()?;
    tell!("wrote {} ({} kB)", file.display(), text.len().div_ceil(1000));
    Ok(())
}
