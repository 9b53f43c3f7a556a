//! Conversion of data to a picture.

use std::{cell::RefCell, time::Duration};

use crate::{
    chart::Chart,
    engine::{VegaEngine, VegaFault},
    error::PlotError,
    page::PageSpec,
    svg::Svg,
};

/// Maximum number of figures: with more marks, browsers don't display the file smoothly.
const MOST_FIGURES: usize = 10_000;

/// Time limit: hundreds of times the duration for a typical chart.
const LONGEST: Duration = Duration::from_secs(60);

/// Draws charts. It loads the library once, so use one plotter for all charts of a report.
pub struct Plotter {
    /// `None` after a failure: the state of a library that was stopped is unknown.
    engine: RefCell<Option<VegaEngine>>,
}

impl Plotter {
    /// Loads the drawing library.
    ///
    /// # Errors
    ///
    /// Fails if there isn't enough memory.
    pub fn new() -> Result<Plotter, PlotError> {
        Ok(Plotter { engine: RefCell::new(Some(load()?)) })
    }

    /// Draws a chart for a page, which takes its colours from the page's style.
    ///
    /// # Errors
    ///
    /// Fails if the chart has too many figures, or if drawing it takes too much time or memory.
    pub fn svg(&self, chart: &Chart) -> Result<Svg, PlotError> {
        let drawn = self.asked(chart, |engine, lite| engine.draw(lite, LONGEST))?;
        let unreadable = || failed(chart, "Vega's SVG has another form than expected");
        Svg::of_vega(&drawn, chart.heading()).ok_or_else(unreadable)
    }

    /// Compiles a chart for [`PAGE_SCRIPT`](crate::PAGE_SCRIPT), which makes it interactive in a page.
    ///
    /// # Errors
    ///
    /// Fails like [`svg`](Self::svg).
    pub fn page_spec(&self, chart: &Chart) -> Result<PageSpec, PlotError> {
        let vega = self.asked(chart, |engine, lite| engine.compile(lite, LONGEST))?;
        let value = serde_json::from_str(&vega).map_err(|error| failed(chart, &error.to_string()))?;
        Ok(PageSpec::new(value))
    }

    fn asked<T>(
        &self,
        chart: &Chart,
        ask: impl FnOnce(&VegaEngine, &str) -> Result<T, VegaFault>,
    ) -> Result<T, PlotError> {
        let lite = specified(chart)?;
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None => load()?,
        };
        let answer = ask(&engine, &lite).map_err(|fault| explained(chart, fault))?;
        self.engine.replace(Some(engine));
        Ok(answer)
    }
}

/// Returns the Vega-Lite specification, unless it is too long.
fn specified(chart: &Chart) -> Result<String, PlotError> {
    match chart.figures() {
        given if given > MOST_FIGURES => {
            Err(PlotError::TooManyFigures { title: chart.heading().title(), given, most: MOST_FIGURES })
        }
        _ => Ok(chart.lite().to_string()),
    }
}

fn load() -> Result<VegaEngine, PlotError> {
    VegaEngine::load().map_err(|fault| match fault {
        VegaFault::Late => PlotError::Library { reason: "it took too long".to_owned() },
        VegaFault::Thrown(reason) => PlotError::Library { reason },
    })
}

fn explained(chart: &Chart, fault: VegaFault) -> PlotError {
    match fault {
        VegaFault::Late => PlotError::TooSlow { title: chart.heading().title(), seconds: LONGEST.as_secs() },
        VegaFault::Thrown(reason) => failed(chart, &reason),
    }
}

fn failed(chart: &Chart, reason: &str) -> PlotError {
    PlotError::Failed { title: chart.heading().title(), reason: reason.to_owned() }
}
