//! `vtax results import`.

use std::path::{Path, PathBuf};

use clap::Args;
use vtax_model::{
    study::Row,
    units::{ByteSize, Mtu},
};
use vtax_store::Store;

use crate::{
    cli::run::{Labelled, keep_brief, read_study},
    exit::Stop,
    import::{self, ImportAs, Imports},
};

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Output of a program, or a table of published figures, e.g. before.json; files of the same test are the rounds of
    /// one result
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Row of a program's output, e.g. bridge, sr-iov or virtio-blk [default: native, or native-disk]
    #[arg(long, value_name = "ROW")]
    method: Option<Row>,
    /// MTU of the wire, which no program reports, e.g. 9000 [default: 1500]
    #[arg(long, value_name = "MTU")]
    mtu: Option<Mtu>,
    /// Message size, e.g. 64, for files that do not report it
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Study with the rows and tests of a table of published figures, e.g. mine.toml [default: the built-in study that
    /// it names]
    #[arg(long, value_name = "STUDY")]
    study: Option<String>,
    #[command(flatten)]
    labelled: Labelled,
}

pub(super) fn import(dir: &Path, args: &ImportArgs) -> Result<(), Stop> {
    let study = args.study.as_deref().map(read_study).transpose()?;
    let ImportArgs { method: row, mtu, size, .. } = *args;
    let wanted = ImportAs { row, mtu, size, study, label: args.labelled.label() };
    let Imports { runs, notes } = import::imports(&args.files, &wanted).map_err(Stop::input)?;
    let store = Store::open(dir)?;
    for run in runs {
        store.add(&run)?;
        let Ok(readings) = run.readings();
        keep_brief(&store, &readings)?;
        tell!("saved as {} in {}: {}", run.header.id, dir.display(), run.header.study.title);
    }
    notes.iter().for_each(|note| tell!("note: {note}"));
    Ok(())
}
