//! `vtax completions` and `vtax man`: the command line for other programs.

use std::{fs, path::PathBuf};

use clap::Args;
use clap_complete::Shell;

use super::{PROGRAM, arguments};
use crate::{
    exit::{Blamed, Coded, Exit, Stop},
    terminal::print,
};

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory for the pages of all commands, e.g. man
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, Stop> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut arguments::whole(), PROGRAM, &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}

pub(crate) fn man(args: &ManArgs) -> Result<Exit, Stop> {
    match &args.dir {
        Some(dir) => {
            let writing = || format!("--dir: writing {}", dir.display());
            fs::create_dir_all(dir).coded("file", writing).or_input()?;
            clap_mangen::generate_to(arguments::whole(), dir).coded("file", writing).or_input()?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(arguments::whole())
                .render(&mut page)
                .coded("defect", || "generating the page")
                .or_infrastructure()?;
            print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(Exit::Done)
}
