//! `vtax methods`.

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use vtax_lab::{Facts, Need, World, availability};
use vtax_model::method::{Availability, DomainKind, IoMethod};

use super::{print, print_json};
use crate::exit::{Blamed, Exit, Stop};

#[derive(Debug, Args)]
pub(crate) struct MethodsArgs {
    /// Print the methods as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct MethodRecord {
    method: IoMethod,
    summary: &'static str,
    domains: &'static [DomainKind],
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

pub(crate) fn methods(args: &MethodsArgs) -> Result<Exit, Stop> {
    let world = World::enter(Need::Ephemeral).or_infrastructure()?;
    let facts = Facts::gather(&world).or_infrastructure()?;
    let records: Vec<MethodRecord> = availability(&facts).into_iter().map(record).collect();
    match args.json {
        true => print_json(&records)?,
        false => print(&table(&records))?,
    }
    Ok(Exit::Done)
}

fn record((method, availability): (IoMethod, Availability)) -> MethodRecord {
    let unsupported = match availability {
        Availability::Yes => None,
        Availability::No(unsupported) => Some(unsupported),
    };
    let available = unsupported.is_none();
    let (why, remedy) = unsupported.map(|unsupported| (unsupported.why, unsupported.remedy)).unzip();
    MethodRecord { method, summary: method.summary(), domains: method.domains(), available, why, remedy }
}

fn table(records: &[MethodRecord]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header([
        "METHOD",
        "HERE",
        "WHAT IT IS; IF IT IS NOT HERE, WHY, AND WHAT MENDS IT",
    ]);
    table.set_width(100);
    for record in records {
        let here = if record.available { "yes" } else { "no" };
        let text = [Some(record.summary.to_owned()), record.why.clone(), record.remedy.clone()];
        let text: Vec<String> = text.into_iter().flatten().collect();
        table.add_row([record.method.name(), here, &text.join("\n")]);
    }
    format!("{}\n", table.trim_fmt())
}
