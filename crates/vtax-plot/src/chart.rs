//! The charts, one file each: data of a report, and the specification for Vega-Lite that it becomes.

mod bars;
mod differences;
mod distribution;
mod scaling;
mod scatter;
mod stacked;
mod time_series;
mod trend;

use serde_json::Value;

pub use self::{
    bars::{Bar, Bars},
    differences::{Differences, Effect, Judgement},
    distribution::{Distribution, Percentiles},
    scaling::{Scaling, ScalingLine, ScalingPoint},
    scatter::{Scatter, ScatterPoint},
    stacked::{Stacked, StackedRow},
    time_series::{Moment, TimeLine, TimeSeries},
    trend::{Trend, TrendChange, TrendLine, TrendRun},
};
use crate::measured::Heading;

macro_rules! charts {
    ($($kind:ident: $doc:literal,)*) => {
        /// A chart as data.
        #[derive(Clone, Debug)]
        pub enum Chart {
            $(#[doc = $doc] $kind($kind),)*
        }

        $(impl From<$kind> for Chart {
            fn from(chart: $kind) -> Chart {
                Chart::$kind(chart)
            }
        })*

        impl Chart {
            /// What it is called, and what it shows.
            pub fn heading(&self) -> &Heading {
                match self {
                    $(Chart::$kind(chart) => &chart.heading,)*
                }
            }

            /// How many figures there are, whether or not they can be drawn.
            pub(crate) fn figures(&self) -> usize {
                match self {
                    $(Chart::$kind(chart) => chart.figures(),)*
                }
            }

            /// The specification for Vega-Lite.
            pub(crate) fn lite(&self) -> Value {
                match self {
                    $(Chart::$kind(chart) => chart.lite(),)*
                }
            }
        }
    };
}

charts! {
    Bars: "Values of groups and series.",
    Differences: "How much each row differs from the baseline.",
    Distribution: "Percentiles of times.",
    Scaling: "Figures over a number, such as that of threads.",
    Scatter: "Two figures of each method.",
    Stacked: "What a total is made of.",
    TimeSeries: "Values over the time of a run.",
    Trend: "Values over runs with dates.",
}
