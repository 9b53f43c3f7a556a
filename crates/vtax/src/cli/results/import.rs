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
    /// What the program printed: files of the same test are the rounds of one result. Or a table of published figures
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The row that a program's output stands for, as bridge, sr-iov or virtio-blk [default: native, or
    /// native-disk]
    #[arg(long, value_name = "ROW")]
    method: Option<Row>,
    /// The MTU of the wire, which no program tells [default: 1500]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<Mtu>,
    /// The size of the messages, for files that don't tell it
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// The study that has the rows and tests of a table of published figures [default: the built-in one that it names]
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
        let mut writer = store.create_run(&run.header)?;
        writer.samples(&run.samples)?;
        writer.finish(run.state, run.wall_seconds)?;
        let Ok(readings) = run.readings();
        keep_brief(&store, &readings)?;
        tell!("kept as {} in {}: {}", run.header.id, dir.display(), run.header.study.title);
    }
    notes.iter().for_each(|note| tell!("note: {note}"));
    Ok(())
}
