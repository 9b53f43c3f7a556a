//! Hostile names and unexpected figures.

use proptest::prelude::*;

use super::*;

/// Names that attempt an injection.
const HOSTILE: [&str; 12] = [
    "</script><script>alert(1)</script>",
    "<b>bold</b>",
    "\"'&amp;]]>",
    "a\u{0}b\u{1b}[2J\u{7f}",
    "\u{202e}reversed\u{2066}",
    "",
    "__proto__",
    "datum.v",
    "currentColor \" onload=\"x",
    "javascript:alert(1)",
    "e\u{301} 🦀 中文 \u{ffff}\u{fffe}",
    "line\nline\ttab",
];

const ODD: [f64; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN,
    f64::MIN_POSITIVE,
    5e-324,
    1e15,
    -1e15,
    1e-12,
];

const JUDGEMENTS: [Judgement; 5] =
    [Judgement::Worse, Judgement::Better, Judgement::NotConfirmed, Judgement::AtMost, Judgement::TooNoisy];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![proptest::sample::select(&HOSTILE[..]).prop_map(String::from), any::<String>()]
}

fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![proptest::sample::select(&ODD[..]), -1e3..1e3]
}

fn measured() -> impl Strategy<Value = Measured> {
    (figure(), proptest::option::of((figure(), figure()))).prop_map(|(value, ends)| Measured {
        interval: ends.map(|(low, high)| Reach { low, high }),
        ..Measured::plain(value)
    })
}

type Named = Vec<(String, String, Measured, Measured)>;

fn rows() -> impl Strategy<Value = Named> {
    proptest::collection::vec((text(), text(), measured(), measured()), 0..6)
}

/// Returns all charts of the same rows.
fn charts(rows: &Named, name: &str) -> Vec<Chart> {
    let heading = Heading::new(name, name);
    let (x, y) = (Quantity::new(name, name), Quantity::new(name, ""));
    let noise = rows.first().and_then(|row| row.2.interval);
    vec![
        bars(rows, &heading, &x, noise),
        differences(rows, &heading, &y, noise),
        distribution(rows, &heading, &x),
        overview(rows, &heading, OverviewLayout::Wide),
        overview(rows, &heading, OverviewLayout::Narrow),
        scatter(rows, &heading, &x, &y),
        shifts(rows, &heading, &x),
        stacked(rows, &heading, &x),
        time_series(rows, &heading, &x, &y),
        trend(rows, &heading, &x),
    ]
}

fn bars(rows: &Named, heading: &Heading, quantity: &Quantity, noise: Option<Reach>) -> Chart {
    let bar = |(a, b, measured, other): &(String, String, Measured, Measured)| Bar {
        published: Some(other.value),
        ..Bar::new(a.clone(), b.clone(), *measured)
    };
    let (heading, quantity) = (heading.clone(), quantity.clone());
    Bars {
        heading,
        groups: quantity.name.clone(),
        quantity,
        bars: rows.iter().map(bar).collect(),
        slots: MethodSlots::default(),
        noise,
    }
    .into()
}

fn differences(rows: &Named, heading: &Heading, quantity: &Quantity, noise: Option<Reach>) -> Chart {
    let row = |(row, judgement): (&(String, String, Measured, Measured), Judgement)| Effect {
        name: row.0.clone(),
        measured: row.2,
        judgement,
    };
    let rows = rows.iter().zip(JUDGEMENTS.into_iter().cycle()).map(row).collect();
    Differences { heading: heading.clone(), quantity: quantity.clone(), rows, noise }.into()
}

fn distribution(rows: &Named, heading: &Heading, quantity: &Quantity) -> Chart {
    let line = |(name, _, a, b): &(String, String, Measured, Measured)| Percentiles {
        name: name.clone(),
        points: [(50.0, a.value), (a.value, 3.0), (99.0, b.value)]
            .map(|(percent, value)| PercentilePoint { percent, value, above: 0 })
            .to_vec(),
    };
    Distribution {
        heading: heading.clone(),
        quantity: quantity.clone(),
        lines: rows.iter().map(line).collect(),
        slots: MethodSlots::default(),
    }
    .into()
}

fn shifts(rows: &Named, heading: &Heading, quantity: &Quantity) -> Chart {
    let line = |(name, _, a, b): &(String, String, Measured, Measured)| ChartLine {
        name: name.clone(),
        points: [(50.0, *a), (a.value, *b), (99.0, *b)].map(|(at, measured)| ChartPoint { at, measured }).to_vec(),
    };
    Shifts {
        heading: heading.clone(),
        quantity: quantity.clone(),
        lines: rows.iter().map(line).collect(),
        slots: MethodSlots::default(),
    }
    .into()
}

fn overview(rows: &Named, heading: &Heading, layout: OverviewLayout) -> Chart {
    let row = |((name, words, a, b), judgement): (&(String, String, Measured, Measured), Judgement)| {
        let cell = |cost: &Measured| {
            let (words, interval, details) = (words.clone(), words.clone(), name.clone());
            Some(OverviewCell { cost: *cost, judgement, words, interval, details })
        };
        OverviewRow { name: name.clone(), cells: vec![cell(a), None, cell(b)] }
    };
    let test = |(quantity, conditions, noise, _): &(String, String, Measured, Measured)| OverviewTest {
        quantity: quantity.clone(),
        conditions: conditions.clone(),
        level: conditions.clone(),
        noise: Some(noise.value),
    };
    Overview {
        heading: heading.clone(),
        baseline: heading.title.clone(),
        tests: rows.iter().map(test).collect(),
        rows: rows.iter().zip(JUDGEMENTS.into_iter().cycle()).map(row).collect(),
        layout,
    }
    .into()
}

fn scatter(rows: &Named, heading: &Heading, x: &Quantity, y: &Quantity) -> Chart {
    let point =
        |(name, _, x, y): &(String, String, Measured, Measured)| ScatterPoint { name: name.clone(), x: *x, y: *y };
    let points = rows.iter().map(point).collect();
    Scatter { heading: heading.clone(), x: x.clone(), y: y.clone(), points, slots: MethodSlots::default() }.into()
}

fn stacked(rows: &Named, heading: &Heading, quantity: &Quantity) -> Chart {
    let parts = rows.iter().map(|row| row.1.clone()).collect();
    let row = |(name, _, a, b): &(String, String, Measured, Measured)| StackedRow {
        name: name.clone(),
        values: vec![a.value, b.value],
    };
    let rows = rows.iter().map(row).collect();
    Stacked { heading: heading.clone(), quantity: quantity.clone(), parts, rows }.into()
}

fn time_series(rows: &Named, heading: &Heading, time: &Quantity, quantity: &Quantity) -> Chart {
    let line = |(name, _, a, b): &(String, String, Measured, Measured)| ChartLine {
        name: name.clone(),
        points: vec![ChartPoint { at: b.value, measured: *a }, ChartPoint { at: 1.0, measured: *b }],
    };
    let lines = rows.iter().map(line).collect();
    TimeSeries {
        heading: heading.clone(),
        time: time.clone(),
        quantity: quantity.clone(),
        lines,
        band: "95 % interval",
    }
    .into()
}

fn trend(rows: &Named, heading: &Heading, quantity: &Quantity) -> Chart {
    let times = [Timestamp::MIN, at(0), Timestamp::MAX];
    let line = |(name, _, a, b): &(String, String, Measured, Measured)| TrendLine {
        name: name.clone(),
        runs: times.iter().zip([a, b, a]).map(|(at, measured)| TrendRun { at: *at, measured: *measured }).collect(),
    };
    let lines = rows.iter().map(line).collect();
    let changes = rows.iter().map(|row| TrendChange { at: at(3), label: row.1.clone() }).collect();
    Trend { heading: heading.clone(), quantity: quantity.clone(), lines, slots: MethodSlots::default(), changes }.into()
}

/// Returns the fault of a picture, if there is one.
fn fault(svg: &Svg) -> Option<String> {
    let tree = match roxmltree::Document::parse(svg.as_str()) {
        Ok(tree) => tree,
        Err(error) => return Some(error.to_string()),
    };
    let elements = ["svg", "g", "path", "line", "text", "title", "desc", "tspan", "rect"];
    for node in tree.descendants().filter(|node| node.is_element()) {
        if !elements.contains(&node.tag_name().name()) {
            return Some(format!("an element {}", node.tag_name().name()));
        }
        for attribute in node.attributes() {
            let name = attribute.name();
            // Browsers treat a label as text, so it may contain any name.
            let is_text = name == "aria-label";
            let bad = ["NaN", "Infinity", "undefined"].iter().chain((!is_text).then_some(&"javascript:"));
            let broken = bad.into_iter().any(|bad| attribute.value().contains(bad));
            if broken || name.starts_with("on") || name == "href" || name == "id" {
                return Some(format!("{name}={}", attribute.value()));
            }
        }
    }
    None
}

fn check(chart: &Chart) {
    let svg = drawn(chart);
    assert_eq!(fault(&svg), None, "{chart:?}\n{}", svg.as_str());
    let spec = PLOTTER.with(|plotter| plotter.page_spec(chart)).expect("a specification").to_string();
    assert!(!spec.contains(['<', '>', '&']), "{spec}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn any_names_and_figures_can_be_drawn(rows in rows(), name in text()) {
        charts(&rows, &name).iter().for_each(check);
    }
}

#[test]
fn hostile_names_are_text() {
    let rows: Named =
        HOSTILE.map(|name| (name.into(), name.into(), Measured::between(2.0, 1.0, 3.0), Measured::plain(2.0))).to_vec();
    for chart in charts(&rows, HOSTILE[0]) {
        check(&chart);
        let svg = drawn(&chart);
        svg.standalone(Theme::Dark).png(1.0).expect("a picture");
        let tree = roxmltree::Document::parse(svg.as_str()).expect("XML");
        let shown = |text: &str| tree.descendants().filter_map(|node| node.text()).any(|own| own == text);
        assert!(shown(HOSTILE[0]) && shown("<b>bold</b>") && shown("\\u{202e}reversed\\u{2066}"), "{}", svg.as_str());
    }
}

#[test]
fn each_odd_figure_alone_can_be_drawn() {
    for value in ODD {
        let rows = vec![("a".into(), "b".into(), Measured::plain(value), Measured::between(value, value, 1.0))];
        charts(&rows, "x").iter().for_each(check);
    }
}

#[test]
fn nothing_can_be_drawn() {
    for chart in charts(&Vec::new(), "x") {
        check(&chart);
        assert!(drawn(&chart).as_str().contains("No figures to show."));
    }
}

/// The time and memory of a chart grow in proportion to its rows, so the charts that take most of both show that the
/// plotter's limits permit a thousand.
#[test]
fn a_thousand_rows_can_be_drawn() {
    let heading = Heading::new("x", "x");
    let many = of_one_method(1_000);
    let quantity = Quantity::new("x", "x");
    let largest = [overview(&many, &heading, OverviewLayout::Wide), trend(&many, &heading, &quantity)];
    for chart in charts(&of_one_method(100), "x").into_iter().chain(largest) {
        assert_eq!(fault(&drawn(&chart)), None);
    }
}

fn of_one_method(rows: u32) -> Named {
    let row = |index: u32| {
        let value = f64::from(index % 97) + 1.0;
        (
            format!("row {index}"),
            "method".to_owned(),
            Measured::between(value, value - 0.5, value + 0.5),
            Measured::plain(value),
        )
    };
    (0..rows).map(row).collect()
}

#[test]
fn too_many_figures_are_refused() {
    let moment = ChartPoint { at: 1.0, measured: Measured::plain(1.0) };
    let lines = vec![ChartLine { name: "a".into(), points: vec![moment; 30_000] }];
    let chart = Chart::from(TimeSeries { lines, ..TimeSeries::default() });
    let refused = PLOTTER.with(|plotter| plotter.svg(&chart));
    assert!(matches!(refused, Err(PlotError::TooManyFigures { given: 30_000, .. })), "{refused:?}");
}
