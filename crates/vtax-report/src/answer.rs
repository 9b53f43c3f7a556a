//! What a run found, in plain sentences: for each question the rows ranked by what they cost.

use vtax_model::{
    analysis::noise,
    cell::Instrument,
    foreign::ForeignText,
    result::{CellRecord, Metric, ResultDocument, TaxRecord},
    units::Mtu,
    workload::TestKind,
};
use vtax_stats::verdict::Verdict;

use super::{
    blocks::{BlockCells, blocks, distinct, names},
    layout::{Section, SectionPart},
    number::{brief_change, cost, interval as ratio_interval, percent},
    tax::{at_most, most, unit},
    words,
};

/// The answer by the instrument that answers the question; with `all` by each, that one last, where it is seen.
pub(crate) fn section(document: &ResultDocument, all: bool) -> Option<Section> {
    let blocks = blocks(document);
    let mut instruments: Vec<Instrument> = document.instruments();
    let several = instruments.len() > 1;
    instruments.truncate(if all { instruments.len() } else { 1 });
    instruments.reverse();
    let of_instrument = |instrument: &Instrument| {
        let blocks: Vec<&BlockCells<'_>> = blocks.iter().filter(|block| block.instrument == *instrument).collect();
        questions(document, &blocks)
    };
    let asked: Vec<Vec<Question<'_>>> = instruments.iter().map(of_instrument).collect();
    let intervals = asked.iter().map(Vec::len).sum::<usize>() <= WITH_INTERVALS;
    let mut parts = Vec::new();
    for (instrument, questions) in instruments.iter().zip(&asked) {
        if questions.is_empty() {
            continue;
        }
        if instruments.len() > 1 {
            parts.push(SectionPart::Paragraph(format!("{}:", words::capital(words::of_instrument(*instrument)))));
        }
        let said = |(subject, findings): &Question<'_>| format!("{subject}: {}.", findings.said(intervals));
        parts.push(SectionPart::bullets(questions.iter().map(said)));
    }
    let of = instruments.first().filter(|_| several && !all).map(|instrument| words::of_instrument(*instrument));
    let caveat = document.caveat.as_ref().map(ForeignText::to_string);
    let mind: Vec<String> = caveat.into_iter().chain(of.map(str::to_owned)).collect();
    let mind = if mind.is_empty() { String::new() } else { format!(" ({})", mind.join("; ")) };
    let title = format!("Answer{mind}: what it costs against {}", document.baseline);
    Section::new(title, parts)
}

type Question<'a> = (String, Findings<'a>);

fn questions<'a>(document: &'a ResultDocument, blocks: &[&BlockCells<'a>]) -> Vec<Question<'a>> {
    let several = distinct(document.cells.iter().map(|record| record.cell.mtu)).len() > 1;
    let tests = distinct(blocks.iter().flat_map(|block| block.tests()));
    let mut questions = Vec::new();
    for test in tests {
        for block in blocks {
            let subject = format!("{} {}{}", block.transport, names(test)[2], block.rest_of_title());
            let at = |mtu: Mtu| if several { format!(", MTU {mtu}") } else { String::new() };
            let of_mtu = |mtu: Mtu| (subject.clone() + &at(mtu), Findings::of(document, block, mtu, test));
            questions.extend(block.mtus().into_iter().map(of_mtu).filter(|(_, findings)| !findings.all.is_empty()));
        }
    }
    questions
}

/// Of more sentences than these the intervals are in the tables only: an answer is to be seen at a glance.
const WITH_INTERVALS: usize = 4;

/// The comparisons of one block, test and MTU, each with its row's name.
struct Findings<'a> {
    document: &'a ResultDocument,
    all: Vec<(&'a CellRecord, &'a TaxRecord)>,
}

impl<'a> Findings<'a> {
    /// The dearest first; of what is not shown, what may be the dearest. They are never in one list.
    fn of(document: &'a ResultDocument, block: &BlockCells<'a>, mtu: Mtu, test: TestKind) -> Findings<'a> {
        let records = block.rows().into_iter().filter_map(|row| block.cell(row, mtu, test));
        let mut all: Vec<_> = records.filter_map(|record| Some((record, record.tax_of(Metric::of(test))?))).collect();
        let size = |tax: &TaxRecord| match tax.verdict {
            Verdict::NoneLarger => most(tax),
            _ => tax.of.cost_ratio(tax.ratio),
        };
        all.sort_by(|(_, one), (_, other)| size(other).total_cmp(&size(one)));
        Findings { document, all }
    }

    /// What is shown, then what there can be at most, then what isn't known.
    fn said(&self, intervals: bool) -> String {
        let groups = [
            self.each("costs", Verdict::Slower, |tax| amount(tax, 1.0, intervals)),
            self.each("saves", Verdict::Faster, |tax| amount(tax, -1.0, intervals)),
            self.each("costs at most", Verdict::NoneLarger, at_most),
            self.listed(Verdict::NotConfirmed, " not confirmed", |tax| format!(" {}", brief_change(tax.ratio))),
            self.listed(Verdict::NoneShown, " not shown to cost anything", |_| String::new()),
            self.listed(Verdict::TooNoisy, &format!(" too noisy to tell{}", self.cause()), |_| String::new()),
        ];
        groups.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// The likeliest cause of noise.
    fn cause(&self) -> String {
        let noisy = self.with(Verdict::TooNoisy).next();
        let cause = noisy.and_then(|(record, _)| noise::causes(self.document, record).into_iter().next());
        cause.map_or(String::new(), |cause| format!(": {} ({})", cause.why(), cause.remedy()))
    }

    fn with(&self, verdict: Verdict) -> impl Iterator<Item = &(&'a CellRecord, &'a TaxRecord)> {
        self.all.iter().filter(move |(_, tax)| tax.verdict == verdict)
    }

    /// `bridge costs 1, veth 2`: the verb once.
    fn each(&self, verb: &str, verdict: Verdict, amount: impl Fn(&TaxRecord) -> String) -> Option<String> {
        let verbs = std::iter::once(format!("{verb} ")).chain(std::iter::repeat(String::new()));
        let found = self.with(verdict).zip(verbs);
        words::list(found.map(|((record, tax), verb)| format!("{} {verb}{}", record.cell.row, amount(tax))), ", ")
    }

    /// `bridge +1 %, veth +2 %: not confirmed`
    fn listed(&self, verdict: Verdict, what: &str, amount: impl Fn(&TaxRecord) -> String) -> Option<String> {
        let verb = if self.with(verdict).count() == 1 { " is" } else { " are" };
        let found = self.with(verdict).map(|(record, tax)| format!("{}{}", record.cell.row, amount(tax)));
        Some(format!("{}{verb}{what}", words::list(found, ", ")?))
    }
}

/// `+3.4 µs [3.2, 3.6] (+27 %)`; of savings with the sign turned.
fn amount(tax: &TaxRecord, sign: f64, intervals: bool) -> String {
    let within = match tax.floor.filter(|_| tax.within_floor) {
        Some(floor) => format!(", within the noise floor of {}", percent(floor)),
        None => String::new(),
    };
    let percent = brief_change(tax.ratio);
    match &tax.delta {
        None => format!("{percent} {}{within}", ratio_interval(tax.low, tax.high)),
        Some(delta) => {
            let (one, other) = (sign * delta.delta_low, sign * delta.delta_high);
            let [amount, interval] = cost(sign * delta.delta, one.min(other), one.max(other));
            let amount = if sign < 0.0 { amount.trim_start_matches('+') } else { &amount };
            let interval = if intervals { format!(" {interval}") } else { String::new() };
            format!("{amount} {}{interval} ({percent}{within})", unit(delta.unit))
        }
    }
}
