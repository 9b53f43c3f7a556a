//! Charts, one file each: data of a report, and its conversion to a Vega-Lite specification.

mod bars;
mod differences;
mod distribution;
mod judgement;
mod lines;
mod overview;
mod scaling;
mod scatter;
mod shifts;
mod stacked;
mod time_series;
mod trend;

use serde_json::Value;

pub use self::{
    bars::{Bar, Bars},
    differences::{Differences, Effect},
    distribution::{Distribution, PercentilePoint, Percentiles},
    judgement::Judgement,
    lines::{ChartLine, ChartPoint},
    overview::{Overview, OverviewCell, OverviewLayout, OverviewRow, OverviewTest},
    scaling::Scaling,
    scatter::{Scatter, ScatterPoint},
    shifts::Shifts,
    stacked::{Stacked, StackedRow},
    time_series::TimeSeries,
    trend::{Trend, TrendChange, TrendLine, TrendRun},
};
use crate::measured::Heading;

macro_rules! charts {
    ($($kind:ident: $doc:literal,)*) => {
        /// Chart as data.
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
            /// Returns the title and summary of the chart.
            pub fn heading(&self) -> &Heading {
                match self {
                    $(Chart::$kind(chart) => &chart.heading,)*
                }
            }

            /// Returns the kind of the chart, e.g. `TimeSeries`.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Chart::$kind(_) => stringify!($kind),)*
                }
            }

            /// Returns the number of figures, including those that cannot be drawn.
            pub(crate) fn figures(&self) -> usize {
                match self {
                    $(Chart::$kind(chart) => chart.figures(),)*
                }
            }

            /// Returns the Vega-Lite specification.
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
    Differences: "Difference of each row from the baseline.",
    Distribution: "Percentiles of times.",
    Overview: "Cost of all methods in all tests.",
    Scaling: "Figures over a count, such as that of threads.",
    Scatter: "Two figures of each method.",
    Shifts: "Differences of percentiles from the baseline.",
    Stacked: "Composition of a total.",
    TimeSeries: "Values over the time of a run.",
    Trend: "Values over runs with dates.",
}
