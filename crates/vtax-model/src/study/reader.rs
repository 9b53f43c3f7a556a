//! From the text of a study file to the study: every error with its line.

mod disks;
mod migrations;
mod sampling;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use sampling::{PathTable, PlanTable, Plans, QuickTable};
use steps::StepTable;

use super::{
    Row, Study, StudyNetwork, StudyPods, StudySubject, UnknownRow,
    matrix::{MatrixPoint, NetMatrix},
    sweep::SweepPoint,
};
use crate::{
    address_family::AddressFamily,
    cell::{Cell, CellTest, Instrument, NetCell},
    endpoint::{self, Endpoint},
    guest::{GuestDefaults, GuestOptions, span, value},
    located::{FileError, Source},
    options::TestOptions,
    topology::Name,
    units::{ByteSize, Mtu, Span},
    workload::{TestKind, TestSizes, Transport, Workload, WorkloadError},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyFile {
    id: Name,
    title: String,
    #[serde(default)]
    question: String,
    baseline: Spanned<String>,
    #[serde(default)]
    both: bool,
    /// Measurement mode that answers the question; by default controlled conditions, if they are measured.
    answer: Option<Spanned<Instrument>>,
    pairs: Option<Spanned<u32>>,
    family: Option<Spanned<AddressFamily>>,
    addresses: Option<IpNet>,
    #[serde(default)]
    endpoint: Vec<Spanned<Endpoint>>,
    guest: Option<Spanned<GuestOptions>>,
    matrix: Matrix,
    /// Settings changed by separate rows.
    #[serde(default)]
    step: Vec<Spanned<StepTable>>,
    options: Option<Spanned<TestOptions>>,
    plan: PlanTable,
    quick: Option<QuickTable>,
    /// Sampling plan of controlled conditions; without it, the study uses only host settings.
    path: Option<PathTable>,
    quick_path: Option<PathTable>,
    /// Known costs: delay of a row's responder before each answer.
    #[serde(default)]
    planted: BTreeMap<String, Spanned<Span>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    methods: Vec<Spanned<String>>,
    /// Methods that are omitted on cables between real NICs unless the user requests them.
    #[serde(default)]
    extra: Vec<Spanned<String>>,
    mtu: Spanned<Vec<Mtu>>,
    transports: Spanned<Vec<Transport>>,
    tests: Spanned<Vec<TestKind>>,
    /// Additional tests over TCP only.
    tcp_tests: Option<Spanned<Vec<TestKind>>>,
    /// Default: one flow.
    streams: Option<Spanned<Vec<u32>>>,
    /// Swept: request and response of rr and crr, message of streams. Instead of the four below.
    sizes: Option<Spanned<Vec<ByteSize>>>,
    /// Swept: idle time of an rr flow before each request. Instead of `gap` of the options.
    gaps: Option<Spanned<Vec<Span>>>,
    /// Default: one byte.
    request: Option<Spanned<ByteSize>>,
    /// Default: one byte.
    response: Option<Spanned<ByteSize>>,
    /// TCP streams; default: 1 MiB, as in sparc-t7-1.
    tcp_message: Option<Spanned<ByteSize>>,
    /// UDP streams; default: the largest datagram that the MTU allows.
    udp_message: Option<Spanned<ByteSize>>,
    /// Default: 1000 MiB.
    file: Option<Spanned<ByteSize>>,
}

pub(super) fn read(source: Source<'_>) -> Result<Study, FileError> {
    if disks::are_tested(source.text) {
        return disks::read(source);
    }
    if migrations::are_tested(source.text) {
        return migrations::read(source);
    }
    Reader { source, file: source.parse()? }.read()
}

struct Reader<'a> {
    source: Source<'a>,
    file: StudyFile,
}

impl Reader<'_> {
    fn read(self) -> Result<Study, FileError> {
        let rows = self.rows()?;
        let baseline = self.row(&self.file.baseline)?;
        check_baseline(self.source, &rows, baseline, &self.file.baseline)?;
        let mut cells = self.cells(&rows)?;
        self.plant(&mut cells)?;
        let Plans { plan, quick, path, quick_path } = self.plans()?;
        let network = StudyNetwork {
            quick_file: self.quick_file(&cells)?,
            endpoints: self.endpoints(&rows)?,
            pods: rows.iter().any(|row| matches!(row, Row::Pods(_))).then(StudyPods::default),
            pairs: self.pairs(&rows)?,
            extra: self.extra(&rows, baseline)?,
            both: self.file.both,
            family: self.family()?,
            addresses: self.file.addresses,
            ..StudyNetwork::default()
        };
        Ok(Study {
            subject: StudySubject::Network(network),
            quick_matrix: None,
            answer: self.answer()?,
            guest: self.guest(&rows)?,
            steps: self.steps()?,
            id: self.file.id,
            title: self.file.title.into(),
            question: self.file.question.into(),
            rows,
            baseline,
            cells,
            plan,
            quick,
            path,
            quick_path,
        })
    }

    fn rows(&self) -> Result<Vec<Row>, FileError> {
        let mut rows: Vec<Row> = Vec::new();
        for written in &self.file.matrix.methods {
            let row = self.row(written)?;
            self.check_row(&rows, row, written)?;
            rows.push(row);
            rows.extend(self.tuned(row, written)?);
        }
        Ok(rows)
    }

    fn extra(&self, rows: &[Row], baseline: Row) -> Result<Vec<Row>, FileError> {
        let extra = |written: &Spanned<String>| match self.row(written)? {
            row if row == baseline || !rows.contains(&row) => {
                let message = format!("`{row}` in `extra` must be one of the methods, other than the baseline");
                Err(self.source.coded("not-in-study", &written.span(), message))
            }
            row => Ok(row),
        };
        self.file.matrix.extra.iter().map(extra).collect()
    }

    fn row(&self, written: &Spanned<String>) -> Result<Row, FileError> {
        row(self.source, written)
    }

    fn check_row(&self, earlier: &[Row], row: Row, written: &Spanned<String>) -> Result<(), FileError> {
        let span = written.span();
        check_new(self.source, earlier, row, written)?;
        let missing = match row {
            Row::Disk(_) => Some("disk tests; add a [[disk_test]]"),
            Row::Migration(_) => Some("guests to migrate; add a [migration_test]"),
            _ => None,
        };
        if let Some(missing) = missing {
            let message = format!("`{row}` requires {missing}, or remove it");
            return Err(self.source.coded("options-clash", &span, message));
        }
        if let Some(other) = earlier.iter().find(|other| other.kind() != row.kind()) {
            let (one, two) = (row.kind(), other.kind());
            let message = format!("`{row}` conflicts with `{other}`: {one}, {two}; use two studies");
            return Err(self.source.coded("rows-clash", &span, message));
        }
        if self.file.both && !row.may_be_both() {
            let message = format!("`both` applies to I/O methods and conflicts with `{row}`; remove `both`");
            return Err(self.source.coded("options-clash", &span, message));
        }
        Ok(())
    }

    fn pairs(&self, rows: &[Row]) -> Result<u32, FileError> {
        let Some(written) = &self.file.pairs else { return Ok(1) };
        let pairs = *written.get_ref();
        let alone = rows.iter().find(|row| !row.may_be_paired());
        let message = match alone {
            _ if !(1..=Study::MOST_PAIRS).contains(&pairs) => {
                format!("pairs = {pairs}: must be 1 to {}", Study::MOST_PAIRS)
            }
            Some(row) if pairs > 1 => {
                format!("`{row}` cannot appear several times behind a switch; remove it, or `pairs`")
            }
            None if pairs > 1 && self.file.both => {
                "`both` conflicts with `pairs`: with several pairs, the other endpoint is a client on its own host; remove one".to_owned()
            }
            None if pairs > 1 && !self.file.endpoint.is_empty() => {
                "`pairs` applies to a lab built for a study, and this one specifies endpoints; remove `pairs`"
                    .to_owned()
            }
            _ => return Ok(pairs),
        };
        let code = if (1..=Study::MOST_PAIRS).contains(&pairs) { "options-clash" } else { "out-of-range" };
        Err(self.source.coded(code, &written.span(), message))
    }

    fn cells(&self, rows: &[Row]) -> Result<Vec<Cell>, FileError> {
        let mut cells = match &self.file.path {
            Some(path) => self.cells_of_path(rows, path)?,
            None => Vec::new(),
        };
        cells.extend(self.cells_of_system(rows)?);
        Ok(cells)
    }

    /// Only tests of one flow whose endpoints recognize the bounds of a slice can be cut into
    /// slices.
    fn cells_of_path(&self, rows: &[Row], path: &PathTable) -> Result<Vec<Cell>, FileError> {
        let mut cells = self.matrix(rows)?;
        cells.retain(Cell::can_be_sliced);
        if cells.is_empty() || self.file.pairs.is_some() {
            let message = "[path] applies to rr and stream over TCP and UDP, with one flow and one pair; remove it, or add such tests";
            return Err(self.source.coded("no-slices", &path.samples.span(), message));
        }
        cells.iter_mut().for_each(Cell::hold_still);
        Ok(cells)
    }

    fn cells_of_system(&self, rows: &[Row]) -> Result<Vec<Cell>, FileError> {
        let PlanTable { tests, mtu, .. } = &self.file.plan;
        let tests = tests.as_ref().map(|tests| self.distinct("tests", tests)).transpose()?;
        let mtus = mtu.as_ref().map(|mtus| self.distinct("mtu", mtus)).transpose()?;
        let mut cells = self.matrix(rows)?;
        cells.retain(|cell| {
            tests.as_ref().is_none_or(|tests| tests.contains(&cell.kind()))
                && mtus.as_ref().is_none_or(|mtus| cell.mtu().is_some_and(|mtu| mtus.contains(&mtu)))
        });
        match cells.is_empty() {
            true => {
                let message = "`tests` and `mtu` of [plan] leave nothing of the matrix";
                Err(self.source.coded("empty-matrix", &self.file.plan.samples.span(), message))
            }
            false => Ok(cells),
        }
    }

    /// Returns every point of the matrix, with host settings.
    fn matrix(&self, rows: &[Row]) -> Result<Vec<Cell>, FileError> {
        let matrix = &self.file.matrix;
        let mtus = self.distinct("mtu", &matrix.mtu)?;
        let transports = self.distinct("transports", &matrix.transports)?;
        let tests = self.distinct("tests", &matrix.tests)?;
        let streams = matrix.streams.as_ref().map_or(Ok(vec![1]), |streams| self.distinct("streams", streams))?;
        self.check_size([mtus.len(), transports.len(), tests.len(), streams.len(), rows.len()])?;
        let sweep = self.sweep()?;
        let of_tcp = matrix.tcp_tests.as_ref().map(|tests| self.distinct("tcp_tests", tests)).transpose()?;
        let of_tcp = of_tcp.into_iter().flatten().map(|test| (Transport::Tcp, test));
        let mut tests: Vec<_> =
            transports.iter().flat_map(|transport| tests.iter().map(|test| (*transport, *test))).collect();
        let more: Vec<_> = of_tcp.filter(|test| !tests.contains(test)).collect();
        tests.extend(more);
        let points = NetMatrix { tests: &tests, streams: &streams, sweep: &sweep, mtus: &mtus, rows }.points();
        points.map(|point| self.cell(point)).collect()
    }

    fn family(&self) -> Result<AddressFamily, FileError> {
        AddressFamily::in_file(self.source, self.file.family.as_ref(), self.file.addresses)
    }

    fn cell(&self, point: MatrixPoint) -> Result<Cell, FileError> {
        let MatrixPoint { transport, kind, streams, variant, swept, mtu, row } = point;
        let matrix = &self.file.matrix;
        let overhead = row.overhead(self.family()?);
        let inner = mtu.less(overhead).map_err(|error| {
            let message = format!("`{row}` uses {overhead} bytes of each packet: {error}");
            self.source.coded("mtu-too-small", &matrix.mtu.span(), message)
        })?;
        let workload = self.workload(transport, kind, swept.size, inner)?;
        let options = self.options(row, swept.gap_of(kind));
        options.check(transport, &workload, streams).map_err(|error| {
            let span = span(&self.file.options).or(span(&matrix.streams)).unwrap_or(0..0);
            self.source.refuse(&span, error)
        })?;
        let net = NetCell { mtu, transport, workload, streams, options };
        Ok(Cell { row, test: CellTest::Net(net), variant, instrument: Instrument::System })
    }

    /// Checks the number of points of a matrix: the product of its lists.
    fn check_size(&self, lists: [usize; 5]) -> Result<(), FileError> {
        let matrix = &self.file.matrix;
        let sizes = matrix.sizes.as_ref().map_or(1, |sizes| sizes.get_ref().len());
        let gaps = matrix.gaps.as_ref().map_or(1, |gaps| gaps.get_ref().len());
        let points = lists.into_iter().chain([sizes, gaps]).fold(1_usize, usize::saturating_mul);
        if points > Study::MOST_CELLS {
            let most = Study::MOST_CELLS;
            let message = format!("the lists of [matrix] multiply to {points} cells; a study has {most} at most");
            return Err(self.source.coded("out-of-range", &matrix.mtu.span(), message));
        }
        Ok(())
    }

    fn plant(&self, cells: &mut [Cell]) -> Result<(), FileError> {
        for (name, delay) in &self.file.planted {
            let row: Row = name.parse().map_err(|error: UnknownRow| self.source.refuse(&delay.span(), error))?;
            let is_asked = |cell: &&mut Cell| cell.row == row && cell.kind().is_paced();
            let mut asked = cells.iter_mut().filter(is_asked).peekable();
            if asked.peek().is_none() {
                let why = "only the rr test of one of the methods can have an injected delay";
                let message = format!("cannot inject a delay in `{name}` ([planted]): {why}; add both, or remove this");
                return Err(self.source.coded("nothing-planted", &delay.span(), message));
            }
            asked.filter_map(Cell::net_mut).for_each(|net| net.options.responder.delay = Some(*delay.get_ref()));
        }
        Ok(())
    }

    fn sweep(&self) -> Result<Vec<SweepPoint>, FileError> {
        let gaps = match &self.file.matrix.gaps {
            Some(gaps) => self.distinct("gaps", gaps)?.into_iter().map(Some).collect(),
            None => vec![None],
        };
        Ok(SweepPoint::all(&self.sizes()?, &gaps))
    }

    /// Returns the swept sizes; if nothing is swept, one variant without its own size.
    fn sizes(&self) -> Result<Vec<Option<ByteSize>>, FileError> {
        let matrix = &self.file.matrix;
        let Some(sizes) = &matrix.sizes else { return Ok(vec![None]) };
        let singles = [&matrix.request, &matrix.response, &matrix.tcp_message, &matrix.udp_message];
        if singles.into_iter().any(Option::is_some) {
            let message = "`sizes` conflicts with the sizes of single tests, since it sets all of them; omit one";
            return Err(self.source.coded("options-clash", &sizes.span(), message));
        }
        Ok(self.distinct("sizes", sizes)?.into_iter().map(Some).collect())
    }

    /// Returns the options of the file, except those of the row and the sweep.
    fn options(&self, row: Row, gap: Option<Span>) -> TestOptions {
        let mut options = value(&self.file.options).unwrap_or_default();
        if let Row::Engine(engine) = row {
            options.engine = engine;
        }
        if let Some(gap) = gap {
            options.gap = Some(gap).filter(|gap| !gap.0.is_zero());
        }
        options
    }

    /// Every row needs both ends, with the same number of each, or one that serves all.
    fn endpoints(&self, rows: &[Row]) -> Result<Vec<Endpoint>, FileError> {
        let written = &self.file.endpoint;
        let Some(first) = written.first() else { return Ok(Vec::new()) };
        if let Some(row) = rows.iter().find(|row| matches!(row, Row::Pods(_))) {
            let message = format!("the pods of `{row}` are created for the run; remove the [[endpoint]] tables");
            return Err(self.source.coded("options-clash", &first.span(), message));
        }
        for endpoint in written {
            if let Some(row) = endpoint.get_ref().method.filter(|row| !rows.contains(row)) {
                let message = format!("the endpoint is for `{row}`, which is not among the methods; add it there");
                return Err(self.source.coded("not-in-study", &endpoint.span(), message));
            }
        }
        let endpoints: Vec<Endpoint> = written.iter().map(|endpoint| endpoint.get_ref().clone()).collect();
        let mtus = self.file.matrix.mtu.get_ref();
        for (row, mtu) in rows.iter().flat_map(|row| mtus.iter().map(move |mtu| (*row, *mtu))) {
            endpoint::pairs(&endpoints, row, mtu).map_err(|error| self.source.refuse(&first.span(), error))?;
        }
        Ok(endpoints)
    }

    /// Guest options must be possible for every row with guests.
    fn guest(&self, rows: &[Row]) -> Result<GuestDefaults, FileError> {
        let Some(table) = &self.file.guest else { return Ok(GuestDefaults::default()) };
        let options = table.get_ref().options();
        let (size, system) = (options.size(), options.system(self.source)?);
        let guest = GuestDefaults { size, system, virtio: options.virtio(), model: options.model(), vf: options.vf() };
        for nic in rows.iter().filter_map(|row| guest.attach(*row)) {
            nic.check(&guest.size).map_err(|error| {
                let span = options.blamed(&error).unwrap_or(table.span());
                self.source.refuse(&span, error)
            })?;
        }
        Ok(guest)
    }

    fn distinct<T: Ord + Copy>(&self, what: &str, list: &Spanned<Vec<T>>) -> Result<Vec<T>, FileError> {
        distinct(self.source, what, list)
    }

    fn workload(
        &self,
        transport: Transport,
        kind: TestKind,
        size: Option<ByteSize>,
        mtu: Mtu,
    ) -> Result<Workload, FileError> {
        let matrix = &self.file.matrix;
        let (message, usual) = match transport {
            Transport::Udp => (&matrix.udp_message, mtu.udp_payload()),
            _ => (&matrix.tcp_message, ByteSize(1 << 20)),
        };
        let sizes = TestSizes {
            request: size.or(value(&matrix.request)).unwrap_or(ByteSize(1)),
            response: size.or(value(&matrix.response)).unwrap_or(ByteSize(1)),
            message: size.or(value(message)).unwrap_or(usual),
            file: value(&matrix.file).unwrap_or(ByteSize(1000 << 20)),
        };
        let workload = sizes.workload(kind).ok_or(WorkloadError::NotOver { test: kind, transport });
        let checked = workload.and_then(|workload| workload.check(transport, mtu).map(|()| workload));
        checked.map_err(|error| self.source.refuse(&self.blamed(&error, transport), error))
    }

    /// Returns the position of the size that `error` is about, or of the list of tests if it has
    /// none.
    fn blamed(&self, error: &WorkloadError, transport: Transport) -> std::ops::Range<usize> {
        let matrix = &self.file.matrix;
        let size = match (error.what(), transport) {
            ("request", _) => &matrix.request,
            ("response", _) => &matrix.response,
            ("message", Transport::Tcp) => &matrix.tcp_message,
            ("message", Transport::Udp) => &matrix.udp_message,
            ("file", Transport::Tcp) => &matrix.file,
            _ => &None,
        };
        span(size).or_else(|| span(&matrix.sizes)).unwrap_or_else(|| matrix.tests.span())
    }
}

fn distinct<T: Ord + Copy>(source: Source<'_>, what: &str, list: &Spanned<Vec<T>>) -> Result<Vec<T>, FileError> {
    let values = list.get_ref();
    if values.is_empty() {
        let message = format!("`{what}` is empty; specify at least one");
        return Err(source.coded("empty-list", &list.span(), message));
    }
    if values.iter().collect::<BTreeSet<_>>().len() < values.len() {
        let message = format!("duplicate value in `{what}`; specify each once");
        return Err(source.coded("named-twice", &list.span(), message));
    }
    Ok(values.clone())
}

fn row(source: Source<'_>, written: &Spanned<String>) -> Result<Row, FileError> {
    written.get_ref().parse().map_err(|error: UnknownRow| source.refuse(&written.span(), error))
}

fn check_new(source: Source<'_>, earlier: &[Row], row: Row, written: &Spanned<String>) -> Result<(), FileError> {
    if earlier.contains(&row) {
        let message = format!("duplicate `{row}`; specify each once");
        return Err(source.coded("named-twice", &written.span(), message));
    }
    Ok(())
}

fn check_baseline(source: Source<'_>, rows: &[Row], baseline: Row, written: &Spanned<String>) -> Result<(), FileError> {
    if !rows.contains(&baseline) {
        let message = format!("the baseline `{baseline}` is not among the methods; add it to `methods`");
        return Err(source.coded("not-in-study", &written.span(), message));
    }
    Ok(())
}
