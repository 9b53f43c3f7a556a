//! Charts for reports: a picture in a page, a standalone file, and an interactive chart.
//!
//! A [`Chart`] is plain data. [`Plotter`] converts it to a Vega-Lite specification, which Vega draws inside an
//! embedded QuickJS, so no browser, no Node.js and no system font is needed. For the reasons, see
//! `docs/decisions/30-plots-by-vega.md`.
//!
//! ```
//! use vtax_plot::{Bar, Bars, Heading, Measured, Plotter, Quantity, Theme};
//!
//! let bars = Bars {
//!     heading: Heading::new("Round trips", "Time of a round trip, by method"),
//!     quantity: Quantity::new("Round trip", "µs"),
//!     groups: "Message".into(),
//!     bars: vec![Bar::new("64 B", "veth", Measured::between(12.0, 11.5, 12.6))],
//!     slots: Default::default(),
//!     noise: None,
//! };
//! let svg = Plotter::new()?.svg(&bars.into())?;
//! assert!(svg.as_str().starts_with("<svg"));
//! let png = svg.standalone(Theme::Light).png(1.0)?;
//! assert!(png.starts_with(b"\x89PNG"));
//! # Ok::<(), vtax_plot::PlotError>(())
//! ```
//!
//! Names and labels are untrusted: they are drawn as text only. Figures that are not finite are omitted.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod chart;
mod engine;
mod error;
mod inert;
mod measured;
mod page;
mod palette;
mod plotter;
mod raster;
mod sheet;
mod svg;
#[cfg(test)]
mod tests;

pub use chart::{
    Bar, Bars, Chart, ChartLine, ChartPoint, Differences, Distribution, Effect, Judgement, Overview, OverviewCell,
    OverviewLayout, OverviewRow, OverviewTest, PercentilePoint, Percentiles, Scaling, Scatter, ScatterPoint, Shifts,
    Stacked, StackedRow, TimeSeries, Trend, TrendChange, TrendLine, TrendRun,
};
pub use error::PlotError;
pub use measured::{Heading, Measured, Quantity, Reach};
pub use page::{PAGE_SCRIPT, PageSpec, page_script_hash, page_style};
pub use palette::{MethodSlots, Theme};
pub use plotter::Plotter;
pub use svg::{Standalone, Svg};
