//! One chart of each kind, with realistic figures.

use super::*;

const METHODS: [&str; 6] = ["host", "veth + bridge", "macvtap", "vhost-net", "VF, passed through", "e1000e"];

fn quantity() -> Quantity {
    Quantity::new("Round trip", "µs")
}

/// Returns slots as a report would assign them: the host is the baseline.
fn slots() -> MethodSlots {
    MethodSlots::new(METHODS.iter().enumerate().map(|(slot, name)| ((*name).to_owned(), slot)))
}

/// Returns a figure with an interval of a few percent.
fn around(value: f64, percent: f64) -> Measured {
    Measured::between(value, value * (1.0 - percent / 100.0), value * (1.0 + percent / 80.0))
}

/// Returns all charts by the names of their files.
pub(crate) fn all() -> Vec<(&'static str, Chart)> {
    vec![
        ("bars", bars().into()),
        ("bars-many", bars_many().into()),
        ("bars-of-ten", bars_of_ten().into()),
        ("differences", differences().into()),
        ("distribution", distribution().into()),
        ("overview", overview(OverviewLayout::Wide).into()),
        ("overview-narrow", overview(OverviewLayout::Narrow).into()),
        ("scaling", scaling().into()),
        ("scatter", scatter().into()),
        ("shifts", shifts(2.0).into()),
        ("shifts-of-tail", shifts(400.0).into()),
        ("stacked", stacked().into()),
        ("time-series", time_series().into()),
        ("trend", trend().into()),
    ]
}

fn bars() -> Bars {
    let mut bars = Vec::new();
    for (index, group) in ["64 B", "512 B", "1,500 B", "9,000 B"].into_iter().enumerate() {
        for (place, series) in METHODS.into_iter().take(4).enumerate() {
            let value = 9.0 + 4.5 * place as f64 + 2.2 * index as f64 * (1.0 + 0.2 * place as f64);
            let mut bar = Bar::new(group, series, around(value, 4.0 + place as f64));
            bar.published = (place == 3 && index < 3).then_some(value * 1.12);
            bars.push(bar);
        }
    }
    Bars {
        heading: Heading::new("Round trips by message size", "Mean time of a round trip for four methods."),
        quantity: quantity(),
        groups: "Message size".into(),
        bars,
        slots: slots(),
        noise: Some(Reach { low: 8.4, high: 9.9 }),
    }
}

fn bars_many() -> Bars {
    let bars = (0..16).flat_map(|index| {
        let group = format!("{} over {}", METHODS[index % 6], ["a bridge", "a cable", "VXLAN"][index / 6]);
        let value = 4.0 + ((index * 37) % 23) as f64;
        [("1 stream", 1.0), ("8 streams", 1.6)]
            .map(|(series, factor)| Bar::new(group.clone(), series, around(value * factor, 6.0)))
    });
    Bars {
        heading: Heading::new("Bandwidth of all rows", "Bandwidth with one and with eight streams."),
        quantity: Quantity::new("Bandwidth", "Gbit/s"),
        groups: String::new(),
        bars: bars.collect(),
        slots: MethodSlots::default(),
        noise: None,
    }
}

/// Returns bars of more methods than there are colours.
fn bars_of_ten() -> Bars {
    let bar = |slot: u32| Bar::new("TCP", format!("method {slot}"), around(10.0 + f64::from(slot), 4.0));
    Bars {
        heading: Heading::new("Round trips of ten methods", "Mean time of a round trip."),
        quantity: quantity(),
        groups: "Test".into(),
        bars: (0..10).map(bar).collect(),
        slots: MethodSlots::new((0..10).map(|slot| (format!("method {slot}"), slot))),
        noise: None,
    }
}

fn differences() -> Differences {
    use Judgement::*;
    let rows = [
        ("veth + bridge", 31.2, 3.4, Worse),
        ("macvtap", 12.9, 2.2, Worse),
        ("vhost-net", 4.4, 3.9, NotConfirmed),
        ("VF, passed through", -6.3, 1.8, Better),
        ("ipvlan", 0.6, 0.9, AtMost),
        ("e1000e", 18.0, 24.0, TooNoisy),
    ];
    let row = |(name, value, half, judgement): (&str, f64, f64, Judgement)| Effect {
        name: name.into(),
        measured: Measured::between(value, value - half, value + half),
        judgement,
    };
    Differences {
        heading: Heading::new("Round trips against the host", "How much longer a round trip takes than on the host."),
        quantity: Quantity::new("Difference from the host", "%"),
        rows: rows.map(row).to_vec(),
        noise: Some(Reach { low: -1.4, high: 1.4 }),
    }
}

fn distribution() -> Distribution {
    let line = |(index, name): (usize, &&str)| {
        let shares = [50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99];
        let value = |share: f64| {
            8.0 * 1.5f64.powi(index as i32) * (1.0 + 0.22 * (-(1.0 - share / 100.0).log10()).powi(2 + index as i32 % 2))
        };
        let point = |percent: f64| {
            let above = (1e6 * (1.0 - percent / 100.0)) as u64;
            PercentilePoint { percent, value: value(percent), above }
        };
        Percentiles { name: (*name).into(), points: shares.map(point).to_vec() }
    };
    Distribution {
        heading: Heading::new("Distribution of round trips", "Percentiles of the time of a round trip."),
        quantity: quantity(),
        lines: METHODS.iter().take(5).enumerate().map(line).collect(),
        slots: slots(),
    }
}

fn overview(layout: OverviewLayout) -> Overview {
    use Judgement::*;
    let test = |quantity: &str, conditions: &str, noise| OverviewTest {
        quantity: quantity.into(),
        conditions: conditions.into(),
        level: if quantity == "RTT" { "native 31.4 µs".into() } else { "native 24.1 Gb/s".into() },
        noise: Some(noise),
    };
    let rows = [
        ("vxlan", [(2.08, 0.03, Worse), (2.05, 0.03, Worse), (2.07, 0.02, Worse), (2.1, 0.04, Worse)]),
        ("veth + bridge", [(1.26, 0.02, Worse), (1.24, 0.01, Worse), (1.25, 0.02, Worse), (1.26, 0.03, Worse)]),
        ("macvlan", [(1.02, 0.01, AtMost), (1.03, 0.02, NotConfirmed), (1.01, 0.03, AtMost), (1.3, 0.6, TooNoisy)]),
        ("VF, passed through", [(0.91, 0.02, Better), (0.92, 0.02, Better), (1.0, 0.02, AtMost), (0.99, 0.02, AtMost)]),
    ];
    let row = |(name, cells): (&str, [(f64, f64, Judgement); 4])| OverviewRow {
        name: name.into(),
        cells: cells.map(|(cost, half, judgement)| Some(cell(cost, half, judgement))).to_vec(),
    };
    Overview {
        heading: Heading::new("vxlan costs most: twice the time", "Cost of each method compared with native."),
        baseline: "native".into(),
        tests: vec![
            test("RTT", "TCP", 0.018),
            test("RTT", "UDP", 0.016),
            test("Bandwidth", "TCP", 0.014),
            test("Bandwidth", "UDP", 0.06),
        ],
        rows: rows.map(row).to_vec(),
        layout,
    }
}

fn cell(cost: f64, half: f64, judgement: Judgement) -> OverviewCell {
    let words = format!("{:+.0} %", (cost - 1.0) * 100.0);
    let interval = format!("[{:+.0}, {:+.0}]", (cost - half - 1.0) * 100.0, (cost + half - 1.0) * 100.0);
    let details = format!("{words} {interval}");
    OverviewCell { cost: Measured::between(cost, cost - half, cost + half), judgement, words, interval, details }
}

fn scaling() -> Scaling {
    let line = |(index, name): (usize, &&str)| {
        let point = |threads: u32| {
            let value = 9_000.0 * f64::from(threads).powf(0.8 - 0.08 * index as f64) / (1.0 + 0.15 * index as f64);
            ChartPoint { at: f64::from(threads), measured: around(value, 4.0) }
        };
        ChartLine { name: (*name).into(), points: [2, 4, 8, 12, 16, 20].map(point).to_vec() }
    };
    Scaling {
        heading: Heading::new("IOPS by threads", "IOPS of all threads together."),
        count: Quantity::new("Threads", ""),
        quantity: Quantity::new("I/Os/s", ""),
        lines: METHODS.iter().take(4).enumerate().map(line).collect(),
        slots: slots(),
        noise: None,
    }
}

fn scatter() -> Scatter {
    let figures = [(24.1, 38.0), (19.2, 55.0), (17.9, 61.0), (18.4, 72.0), (23.4, 44.0), (3.1, 98.0)];
    let point =
        |(name, (x, y)): (&str, (f64, f64))| ScatterPoint { name: name.into(), x: around(x, 3.0), y: around(y, 5.0) };
    Scatter {
        heading: Heading::new("Bandwidth and its price", "Bandwidth of each method against the CPU that it takes."),
        x: Quantity::new("Bandwidth", "Gbit/s"),
        y: Quantity::new("CPU", "% of a core"),
        points: METHODS.into_iter().zip(figures).map(point).collect(),
        slots: slots(),
    }
}

/// Returns differences that are `tail` times as large at the 99.9th percentile as at the median.
fn shifts(tail: f64) -> Shifts {
    let line = |(index, name): (usize, &&str)| {
        let point = |percent: f64| {
            let growth = 1.0 + (tail - 1.0) * (percent / 99.9).powi(40);
            let value = (index as f64 - 0.5) * 1.3 * growth;
            let half = 0.2 + 0.3 * growth;
            ChartPoint { at: percent, measured: Measured::between(value, value - half, value + half) }
        };
        let percents = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];
        ChartLine { name: (*name).into(), points: percents.map(point).to_vec() }
    };
    Shifts {
        heading: Heading::new("Where the cost is", "Difference of each percentile from the host's."),
        quantity: Quantity::new("Difference from the host", "µs"),
        lines: METHODS.iter().skip(1).enumerate().map(line).collect(),
        slots: slots(),
    }
}

fn stacked() -> Stacked {
    let row = |(index, name): (usize, &&str)| {
        let place = index as f64;
        StackedRow {
            name: (*name).into(),
            values: vec![20.0 + 6.0 * place, 11.0 * place, 30.0 - 2.5 * place, 1.5 * place],
        }
    };
    Stacked {
        heading: Heading::new("Where the CPU time goes", "CPU time of each method, by who uses it."),
        quantity: Quantity::new("CPU", "% of a core"),
        parts: ["guest", "vhost", "host's stack", "QEMU"].map(String::from).to_vec(),
        rows: METHODS.iter().enumerate().map(row).collect(),
    }
}

fn time_series() -> TimeSeries {
    let line = |(index, name): (usize, &&str)| {
        let moment = |second: u32| {
            let at = f64::from(second);
            let value =
                9.0 + 4.0 * index as f64 + (at / (3.0 + index as f64)).sin() + if second == 31 { 2.5 } else { 0.0 };
            ChartPoint { at, measured: around(value, 5.0) }
        };
        ChartLine { name: (*name).into(), points: (0..=60).map(moment).collect() }
    };
    TimeSeries {
        heading: Heading::new("Round trips during the run", "Mean time of a round trip in each second."),
        time: Quantity::new("Time", "s"),
        quantity: quantity(),
        lines: METHODS.iter().take(3).enumerate().map(line).collect(),
        band: "95 % interval",
    }
}

fn trend() -> Trend {
    let line = |(index, name): (usize, &&str)| {
        let run = |day: i64| {
            let slower = if day >= 40 { 2.0 } else { 0.0 };
            let value = 10.0 + 5.0 * index as f64 + slower + ((day * 7) % 5) as f64 * 0.15;
            TrendRun { at: at(day), measured: around(value, 3.0) }
        };
        TrendLine { name: (*name).into(), runs: (0..90).step_by(6).map(run).collect() }
    };
    let change = |(day, label): (i64, &str)| TrendChange { at: at(day), label: label.into() };
    Trend {
        heading: Heading::new("Round trips since the summer", "Mean time of a round trip in each run."),
        quantity: quantity(),
        lines: METHODS.iter().take(2).enumerate().map(line).collect(),
        slots: slots(),
        changes: [(38, "kernel 6.12.4"), (44, "microcode")].map(change).to_vec(),
    }
}
