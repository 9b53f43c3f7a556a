//! Time for advice based on the figures of 10,000 runs.
//!
//! `cargo bench --package vtax-model --bench advice`; no privileges required. The target is 200 ms.

use std::{error::Error, hint::black_box, time::Instant};

use vtax_model::{
    advice::{
        AdviceInput, FigureRole, FigureStanding, Inventory, MeasuredFigure, RequiredDevice, Requirements, advise,
    },
    located::Source,
    method::MethodVariant,
    units::Mtu,
};
use vtax_stats::{BoundedMean, Confidence, Summary};

const RUNS: u32 = 10_000;
const ROUNDS: usize = 15;
const ROLES: [FigureRole; 5] =
    [FigureRole::P50, FigureRole::P99, FigureRole::P999, FigureRole::Bandwidth, FigureRole::HostCpu];
const REQUIRED: &str = "guests = 12\np50 = \"90us\"\np99 = \"150us\"\np999 = \"1ms\"\nbandwidth = \"2G\"\n\
                        host-cpu-at-most = 3.0\nmigrate = \"live\"\n";

/// Returns the figures of all runs. Each run has all figures of one method.
fn figures() -> Vec<MeasuredFigure> {
    let variants = MethodVariant::all();
    let of_run = |run: u32| {
        let variant = variants[run as usize % variants.len()];
        ROLES.map(|role| {
            let mean = 100.0 + f64::from(run % 97);
            MeasuredFigure {
                variant,
                device: RequiredDevice::Net,
                role,
                value: BoundedMean { mean, low: mean * 0.97, high: mean * 1.03, rounds: 20 },
                guests: if run.is_multiple_of(3) { 1 } else { 12 },
                run: format!("t7-{run}"),
                at: i64::from(run),
                standing: FigureStanding::Valid,
            }
        })
    };
    (0..RUNS).flat_map(of_run).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let requirements = Requirements::parse(Source { name: "required.toml", text: REQUIRED })?;
    let (inventory, figures) = (Inventory::default(), figures());
    let input = AdviceInput {
        requirements: &requirements,
        inventory: &inventory,
        figures: &figures,
        mtu: Mtu::ETHERNET,
        cable: None,
        now: i64::from(RUNS),
    };
    let mut millis = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        black_box(advise(black_box(&input)));
        millis.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let summary = Summary::of(&millis, Confidence::P95)?;
    let spread = summary.spread.ok_or("too few rounds")?;
    println!("{RUNS} runs, {} figures: {:.1} [{:.1}, {:.1}] ms", figures.len(), summary.mean, spread.low, spread.high);
    Ok(())
}
