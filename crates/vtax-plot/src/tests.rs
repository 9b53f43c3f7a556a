//! Tests of all charts, with realistic and with unexpected figures.

use jiff::Timestamp;

use crate::*;

mod hostile;
mod pictures;
mod samples;
mod specs;
mod versions;

fn at(day: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + day * 86_400).expect("a time")
}

thread_local! {
    static PLOTTER: Plotter = Plotter::new().expect("the library loads");
}

fn drawn(chart: &Chart) -> Svg {
    PLOTTER.with(|plotter| plotter.svg(chart)).unwrap_or_else(|error| panic!("{error}: {chart:?}"))
}
