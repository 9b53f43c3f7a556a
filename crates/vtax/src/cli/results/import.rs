//! `vtax results import`.

use std::path::{Path, PathBuf};

use clap::Args;
use vtax_model::{
    study::Row,
    units::{ByteSize, Mtu},
};
use vtax_store::Store;

use crate::{
    cli::run::Labelled,
    exit::Stop,
    import::{self, ImportAs},
};

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// What the program printed. Files of the same test are the rounds of one result
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The row that the result stands for, as bridge or sr-iov
    #[arg(long, value_name = "ROW", default_value = "native")]
    method: Row,
    /// The MTU of the wire, which no file tells
    #[arg(long, value_name = "BYTES", default_value = "1500")]
    mtu: Mtu,
    /// The size of the messages, for files that don't tell it
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    #[command(flatten)]
    labelled: Labelled,
}

pub(super) fn import(dir: &Path, args: &ImportArgs) -> Result<(), Stop> {
    let wanted = ImportAs { row: args.method, mtu: args.mtu, size: args.size, label: args.labelled.label() };
    let run = import::run(&args.files, &wanted).map_err(Stop::input)?;
    let mut writer = Store::open(dir)?.create_run(&run.header)?;
    writer.samples(&run.samples)?;
    writer.finish(run.state, run.wall_seconds)?;
    tell!("kept as {} in {}", run.header.id, dir.display());
    Ok(())
}
