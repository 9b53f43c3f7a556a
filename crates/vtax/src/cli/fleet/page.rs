//! A mesh as a page: what is slow, all pairs as a matrix, and the figures of all hosts.

use std::fmt::Write as _;

use vtax_fleet::{FigureRow, MatrixCell, MeshMatrix, MeshReport};
use vtax_model::foreign::ForeignText;
use vtax_report::html::{PageFrame, escaped};

/// Number of ends up to which the rows of the matrix have names.
const NAMED: usize = 64;
/// Share of the matrix that a part of the fleet must have for its name to fit.
const NAMED_PART: f64 = 0.02;
/// Room for names, in rows.
const MARGIN: f64 = 0.18;

const STYLE: &str = "\
.matrix{max-width:60rem;width:100%;height:auto;display:block}\
.matrix text{fill:currentColor}\
.usual{fill:var(--line)}\
.faster{fill:var(--plot-better)}\
.slow1{fill:color-mix(in oklab,var(--plot-worse) 35%,var(--paper))}\
.slow2{fill:color-mix(in oklab,var(--plot-worse) 65%,var(--paper))}\
.slow3{fill:var(--plot-worse)}\
.border{stroke:var(--faint);fill:none}\
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;list-style:none;padding:0}\
.legend svg{height:.8em;width:.8em;margin-right:.4em}\
.suspect th{font-weight:700}";

/// Classes of cells, from the fastest to the slowest.
const CLASSES: [&str; 5] = ["faster", "usual", "slow1", "slow2", "slow3"];

/// Returns the page. It needs neither scripts nor the network.
pub(super) fn page(name: &str, report: &MeshReport, matrix: &MeshMatrix) -> String {
    let headline = report.headline();
    let summary = report.summary();
    let mut lines = summary.lines();
    let mut contents = format!("<main id=\"contents\">\n<h1>{}</h1>\n", escaped(&headline));
    let heading: Vec<String> = lines.by_ref().take(2).map(escaped).collect();
    let _ = writeln!(contents, "<p>{}.</p>", heading.join(".<br>\n"));
    let findings: String = lines.map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    if !findings.is_empty() {
        let _ = writeln!(contents, "<section class=\"answer\" aria-label=\"Findings\"><ul>\n{findings}</ul></section>");
    }
    contents += &figure(matrix);
    contents += &table(&report.rows());
    let _ = writeln!(contents, "<p class=\"faint\">{}</p>\n</main>", escaped(name));
    let head = format!("<style>{STYLE}</style>\n");
    PageFrame { title: &headline, links: &[], head: &head, script: None }.around(&contents)
}

/// Cells to draw, in rows of ends.
struct Grid {
    columns: usize,
    /// By row and column.
    cells: Vec<MatrixCell>,
    /// Width of a cell in heights.
    aspect: f64,
    /// Columns at which a line is drawn.
    lines: Vec<usize>,
    title: &'static str,
    caption: &'static str,
}

impl Grid {
    /// Returns all pairs, or the tests of each end if most pairs were not measured.
    fn of(matrix: &MeshMatrix) -> Grid {
        let ends = matrix.ends.len();
        if 2 * matrix.cells.len() < ends * ends.saturating_sub(1) {
            return Grid::of_tests(matrix);
        }
        let mut lines = Vec::new();
        for part in &matrix.parts {
            lines.push(lines.last().copied().unwrap_or(0) + part.ends);
        }
        lines.pop();
        Grid {
            columns: ends,
            cells: matrix.cells.clone(),
            aspect: 1.0,
            lines,
            title: "All pairs",
            caption: "Rows send or initiate, columns receive or respond, in the same order. A slow host has a slow row \
                      or column.",
        }
    }

    /// On the left what each end sends or initiates, on the right what it receives or responds to, in the order of its
    /// partners.
    fn of_tests(matrix: &MeshMatrix) -> Grid {
        let mut of_end: Vec<[Vec<f64>; 2]> = vec![Default::default(); matrix.ends.len()];
        for cell in &matrix.cells {
            let [of_sender, of_receiver] = [matrix.effects[cell.row][0], matrix.effects[cell.column][1]];
            of_end[cell.row][0].push(cell.relative - of_receiver);
            of_end[cell.column][1].push(cell.relative - of_sender);
        }
        let most = of_end.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let cell = |row: usize, (column, relative): (usize, &f64)| MatrixCell { row, column, relative: *relative };
        let half = |row: usize, first: usize, values: &[f64]| {
            let columns = values.iter().enumerate().map(|(nth, value)| cell(row, (first + nth, value)));
            columns.collect::<Vec<MatrixCell>>()
        };
        let rows = of_end.iter().enumerate();
        let cells = rows.flat_map(|(row, [sends, receives])| [half(row, 0, sends), half(row, most, receives)].concat());
        Grid {
            columns: 2 * most,
            cells: cells.collect(),
            aspect: matrix.ends.len() as f64 / (2 * most).max(1) as f64,
            lines: vec![most],
            title: "All tests",
            caption: "A row for each host: on the left its tests as sender or initiator, on the right those as receiver or \
                      responder, without the effects of its partners. A slow host has a slow half of a row.",
        }
    }
}

fn figure(matrix: &MeshMatrix) -> String {
    // Noise should not look like a finding.
    let first = (3.0 * matrix.noise).clamp(0.05, 0.25);
    let grid = Grid::of(matrix);
    format!(
        "<section aria-label=\"{title}\">\n<h2>{title}</h2>\n<p class=\"faint\">{}</p>\n{}\n{}</section>\n",
        grid.caption,
        legend(first),
        drawing(matrix, &grid, first),
        title = grid.title,
    )
}

fn legend(first: f64) -> String {
    let percent = (first * 100.0).round();
    let texts = [
        format!("{percent} % faster than usual, or more"),
        "usual".to_owned(),
        format!("{percent} % slower, or more"),
        "25 % slower, or more".to_owned(),
        "50 % slower, or more".to_owned(),
    ];
    let entry = |(class, text): (&str, String)| {
        format!(
            "<li><svg viewBox=\"0 0 1 1\" aria-hidden=\"true\"><path class=\"{class}\" d=\"M0 0h1v1h-1z\"/></svg>{text}</li>\n"
        )
    };
    let entries: String = CLASSES.into_iter().zip(texts).map(entry).collect();
    format!("<ul class=\"legend\">\n{entries}<li>blank: not measured</li>\n</ul>\n")
}

/// Returns the class of a cell by its logarithm.
fn class(relative: f64, first: f64) -> usize {
    let slower = -relative.exp_m1();
    match slower {
        slower if slower <= -first => 0,
        slower if slower < first => 1,
        slower if slower < 0.25 => 2,
        slower if slower < 0.5 => 3,
        _ => 4,
    }
}

fn drawing(matrix: &MeshMatrix, grid: &Grid, first: f64) -> String {
    let size = matrix.ends.len() as f64;
    let margin = size * MARGIN;
    let mut paths: [String; CLASSES.len()] = Default::default();
    // Adjacent cells of a class in a row are drawn as one rectangle, so that a million cells make a
    // small file.
    let run = |one: &MatrixCell, other: &MatrixCell| {
        one.row == other.row
            && other.column == one.column + 1
            && class(one.relative, first) == class(other.relative, first)
    };
    for cells in grid.cells.chunk_by(run) {
        let MatrixCell { row, column, relative } = cells[0];
        let width = cells.len();
        let _ = write!(paths[class(relative, first)], "M{column} {row}h{width}v1h-{width}z");
    }
    let drawn = CLASSES.iter().zip(paths).filter(|(_, path)| !path.is_empty());
    let drawn: String = drawn.map(|(class, path)| format!("<path class=\"{class}\" d=\"{path}\"/>\n")).collect();
    let width = grid.columns as f64 * grid.aspect;
    format!(
        "<svg class=\"matrix\" role=\"img\" aria-label=\"{}\" viewBox=\"-{margin:.2} -{edge:.2} {:.2} {:.2}\" \
         shape-rendering=\"crispEdges\">\n<g transform=\"scale({:.4} 1)\">\n{drawn}</g>\n{}{}</svg>\n",
        grid.title,
        width + margin + size / 300.0,
        size + 2.0 * size / 300.0,
        grid.aspect,
        borders(matrix, grid, width),
        names(matrix),
        edge = size / 300.0,
    )
}

/// Lines around all cells and between the parts of the fleet.
fn borders(matrix: &MeshMatrix, grid: &Grid, width: f64) -> String {
    let size = matrix.ends.len() as f64;
    let thickness = size / 900.0;
    let mut text = format!("<path class=\"border\" stroke-width=\"{thickness:.3}\" d=\"M0 0h{width}v{size}h-{width}z");
    let mut at = 0;
    for part in &matrix.parts[..matrix.parts.len().saturating_sub(1)] {
        at += part.ends;
        let _ = write!(text, "M0 {at}h{width}");
    }
    for column in &grid.lines {
        let _ = write!(text, "M{} 0v{size}", *column as f64 * grid.aspect);
    }
    text.push_str("\"/>\n");
    text
}

/// Names of the rows, or of the parts if there are too many rows.
fn names(matrix: &MeshMatrix) -> String {
    let size = matrix.ends.len() as f64;
    let label = |middle: f64, room: f64, name: &ForeignText| {
        let name = escaped(&name.to_string());
        let letters = name.chars().count().max(1) as f64;
        // Letters of this size fit into the margin.
        let letter = (0.7 * room).min(size / 50.0).min(size * MARGIN / (0.62 * letters));
        format!(
            "<text x=\"-{:.2}\" y=\"{:.2}\" font-size=\"{letter:.3}\" text-anchor=\"end\">{name}</text>\n",
            size / 120.0,
            middle + 0.35 * letter
        )
    };
    if matrix.ends.len() <= NAMED {
        return matrix.ends.iter().enumerate().map(|(row, name)| label(row as f64 + 0.5, 1.0, name)).collect();
    }
    let mut at = 0.0;
    let mut text = String::new();
    for part in &matrix.parts {
        let ends = part.ends as f64;
        if ends / size >= NAMED_PART {
            text += &label(at + ends / 2.0, ends, &part.name);
        }
        at += ends;
    }
    text
}

fn table(rows: &[FigureRow]) -> String {
    let row = |row: &FigureRow| {
        let class = if row.is_suspect { " class=\"suspect\"" } else { "" };
        format!(
            "<tr{class}><th scope=\"row\">{}</th><td class=\"left\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escaped(&row.end.to_string()),
            row.direction,
            row.value,
            row.compared,
            row.partners
        )
    };
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<h2>All hosts</h2>\n<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"All hosts\">\n<table>\n\
         <caption>The slowest first; suspects in bold. 95 % intervals over partners.</caption>\n\
         <thead><tr><th>host</th><th>direction</th><th class=\"right\">median</th><th class=\"right\">compared with the fleet</th>\
         <th class=\"right\">slow with partners</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

#[cfg(test)]
mod tests {
    use vtax_fleet::MatrixPart;

    use super::*;

    /// `measured` chooses the pairs, and the first end sends at half the rate.
    fn matrix(ends: usize, measured: impl Fn(usize, usize) -> bool) -> MeshMatrix {
        let pairs = (0..ends).flat_map(|row| (0..ends).map(move |column| (row, column)));
        let cells = pairs.filter(|(row, column)| row != column && measured(*row, *column));
        let relative = |row: usize| if row == 0 { -0.7 } else { 0.0 };
        MeshMatrix {
            ends: (0..ends).map(|end| format!("<gpu{end}>").into()).collect(),
            parts: vec![MatrixPart { name: "leaf0".into(), ends }],
            cells: cells.map(|(row, column)| MatrixCell { row, column, relative: relative(row) }).collect(),
            effects: (0..ends).map(|end| [relative(end), 0.0]).collect(),
            noise: 0.01,
        }
    }

    #[test]
    fn neighbours_of_a_class_are_one_rectangle_and_names_are_escaped() {
        let drawn = figure(&matrix(4, |_, _| true));
        assert!(drawn.contains("<path class=\"slow3\" d=\"M1 0h3v1h-3z\"/>"), "{drawn}");
        assert!(drawn.contains("M0 1h1v1h-1zM2 1h2v1h-2z") && drawn.contains("&lt;gpu3&gt;"), "{drawn}");
        let large = figure(&matrix(1000, |_, _| true));
        assert!(large.len() < 100_000, "{} bytes", large.len());
    }

    /// Half of a slow sender's row is slow, and none of its partners' rows.
    #[test]
    fn most_pairs_not_measured_gives_a_row_of_tests_for_each_host() {
        let drawn = figure(&matrix(100, |row, column| (row + column) % 20 == 0));
        assert!(drawn.contains("<h2>All tests</h2>"));
        let (_, cells) = drawn.split_once("<g transform=").expect("cells follow the legend");
        assert!(cells.contains("<path class=\"slow3\" d=\"M0 0h4v1h-4z\"/>"), "{cells}");
        assert!(!["faster", "slow1", "slow2"].iter().any(|class| cells.contains(class)), "{cells}");
    }
}
