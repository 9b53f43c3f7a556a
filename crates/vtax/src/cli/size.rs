//! `vtax size`.

mod asked;
mod evidence;
mod machine;
mod measurement;
mod prove;
mod refusal;

use clap::{Args, Subcommand};
use vtax_report::proposed_size;

use super::{Locations, answer, print_json, run::print_view};
use crate::exit::{Blamed, Exit, Stop};
use asked::WantedSize;
use measurement::{SizeMeasurements, SizeMeasuring};
use prove::ProveSizeArgs;
use refusal::stopped;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SizeArgs {
    #[command(subcommand)]
    verb: Option<SizeVerb>,
    #[command(flatten)]
    wanted: WantedSize,
    /// Print the proposal as JSON (vtax.size/v1)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measuring: SizeMeasuring,
}

#[derive(Debug, Subcommand)]
enum SizeVerb {
    /// Run the load on the proposed cores, and on one fewer, and report whether the target is met
    Prove(Box<ProveSizeArgs>),
}

pub(crate) fn size(args: &SizeArgs, places: &Locations) -> Result<Exit, Stop> {
    if let Some(SizeVerb::Prove(prove)) = &args.verb {
        return prove::prove(prove, places);
    }
    let asked = args.wanted.asked();
    asked.target.loads().map_err(stopped)?;
    if args.measuring.measure {
        let plan = args.measuring.planned(&asked.target)?;
        if args.measuring.dry_run {
            return answer(args.json, &plan, SizeMeasurements::told);
        }
        match plan.take(places)? {
            Exit::Done => {}
            other => return Ok(other),
        }
    }
    let dir = places.state_dir()?;
    let proposal = asked.proposal(&dir)?;
    asked.keep(&dir).or_infrastructure()?;
    if args.json {
        print_json(&proposal)?;
    } else {
        print_view(&proposed_size(&proposal))?;
    }
    Ok(Exit::Done)
}
