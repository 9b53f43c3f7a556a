//! Errors of drawing.

/// Reason why a chart could not be drawn.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PlotError {
    #[error("the chart \"{title}\" has {given} figures, but at most {most} can be drawn: split it")]
    #[diagnostic(code("chart-too-large"))]
    TooManyFigures { title: String, given: usize, most: usize },
    #[error("a picture of {width} × {height} pixels is too large: draw at a smaller scale, or keep the SVG")]
    #[diagnostic(code("chart-too-large"))]
    TooManyPixels { width: f32, height: f32 },
    #[error("drawing the chart \"{title}\" took longer than {seconds} s: reduce the number of figures")]
    #[diagnostic(code("chart-too-large"))]
    TooSlow { title: String, seconds: u64 },
    #[error("cannot draw the chart \"{title}\": {reason}")]
    #[diagnostic(code("chart-failed"))]
    Failed { title: String, reason: String },
    #[error("cannot start the drawing library: {reason}")]
    #[diagnostic(code("chart-failed"))]
    Library { reason: String },
    #[error("cannot convert the chart to PNG: {reason}")]
    #[diagnostic(code("chart-failed"))]
    Raster { reason: String },
}
