//! Start page: this machine, the latest results, and the list of all results with a filter form. It needs no script.

use std::fmt::Write as _;

use rustix::system::uname;
use strum::IntoEnumIterator;
use vtax_report::html::{PageFrame, escaped};
use vtax_store::{Condition, RunSummary};

use super::{
    chosen::{Chosen, query},
    latest, machine,
    pages::{NoPage, Service},
    start, trends,
};

/// Number of results on one page of the list.
const ON_A_PAGE: usize = 100;

pub(crate) const STYLE: &str = include_str!("list.css");

/// Filter of the list.
struct Filter<'a> {
    /// Words as in [`RunSummary::has_words`].
    words: &'a str,
    state: &'a str,
}

impl<'a> Filter<'a> {
    fn of(chosen: &'a Chosen) -> Filter<'a> {
        Filter { words: chosen.one("words").trim(), state: chosen.one("state") }
    }

    fn takes(&self, run: &RunSummary) -> bool {
        run.has_words(self.words) && (self.state.is_empty() || run.state.to_string() == self.state)
    }

    fn is_everything(&self) -> bool {
        self.words.is_empty() && self.state.is_empty()
    }
}

pub(crate) fn page(service: &Service, chosen: &Chosen) -> Result<String, NoPage> {
    let (all, filter) = (service.all()?, Filter::of(chosen));
    let found: Vec<&RunSummary> = all.iter().filter(|run| filter.takes(run)).collect();
    let pages = found.len().div_ceil(ON_A_PAGE).max(1);
    let number = chosen.one("page").parse().unwrap_or(1usize).clamp(1, pages);
    let shown: Vec<&RunSummary> = found.iter().copied().skip((number - 1) * ON_A_PAGE).take(ON_A_PAGE).collect();
    let base = service.key.base();
    let mut text = String::from("<main id=\"contents\">\n");
    if filter.is_everything() && number == 1 {
        let host = escaped(&uname().nodename().to_string_lossy());
        let _ = writeln!(text, "<h1>{host}</h1>");
        text += &latest::sections(&service.figures, &service.state_dir, &base, &all);
        text += &trends::section(&service.shifts, &service.state_dir, &all);
        text += &start::section(service, &all);
        text += &machine::sections(&service.program, &service.state_dir);
        text += "<h2>All results</h2>\n";
    } else {
        text += "<h1>Results</h1>\n";
    }
    let folder = escaped(&service.state_dir.display().to_string());
    let _ =
        writeln!(text, "<p class=\"faint\">{} in {folder}</p>", count(found.len(), all.len(), filter.is_everything()));
    if all.is_empty() {
        text += "<p>No results yet. Start with <code>vtax demo</code>.</p>\n";
    } else {
        text += &form(&base, &filter);
    }
    if !shown.is_empty() {
        text += &table(&base, &shown);
    }
    text += &turn(&base, &filter, number, pages);
    let head = format!("<style>{STYLE}</style>\n");
    Ok(PageFrame { title: "vtax results", links: &service.links(), head: &head, script: None }
        .around(&format!("{text}</main>\n")))
}

fn count(found: usize, all: usize, everything: bool) -> String {
    let of_all = if all == 1 { "1 result".to_owned() } else { format!("{all} results") };
    if everything { of_all } else { format!("{found} of {of_all}") }
}

fn form(base: &str, filter: &Filter<'_>) -> String {
    let option = |state: Condition| {
        let chosen = if state.to_string() == filter.state { " selected" } else { "" };
        format!("<option value=\"{state}\"{chosen}>{state}</option>")
    };
    let states: String = Condition::iter().map(option).collect();
    format!(
        "<form class=\"filter\" role=\"search\" action=\"{base}/\">\n\
         <label>Words in run, label or title <input type=\"search\" name=\"words\" value=\"{}\"></label>\n\
         <label>State <select name=\"state\"><option value=\"\">any</option>{states}</select></label>\n\
         <button>Show</button>\n</form>\n",
        escaped(filter.words)
    )
}

fn table(base: &str, runs: &[&RunSummary]) -> String {
    let rows: String = runs.iter().map(|run| row(base, run)).collect();
    format!(
        "<form action=\"{base}/open\">\n\
         <div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"Results\">\n<table>\n<thead>\n<tr>\
         <td></td><th class=\"left\" scope=\"col\">Run</th><th class=\"left\" scope=\"col\">Study</th>\
         <th class=\"left\" scope=\"col\">Result</th><th class=\"left\" scope=\"col\">State</th><th class=\"right\" scope=\"col\">Samples</th>\
         <th class=\"right\" scope=\"col\">Failed</th><th class=\"right\" scope=\"col\">Took</th></tr>\n</thead>\n\
         <tbody>\n{rows}</tbody>\n</table>\n</div>\n\
         <p><button>Open selected on one page</button> <small class=\"faint\">The oldest comes first; the \
         others are compared with it.</small></p>\n</form>\n"
    )
}

fn row(base: &str, run: &RunSummary) -> String {
    let id = escaped(&run.id);
    let quick = if run.quick { " <small class=\"faint\">quick</small>" } else { "" };
    let state = match run.state {
        Condition::Running => "<strong>running</strong>: watch".to_owned(),
        other => other.to_string(),
    };
    format!(
        "<tr><td><input type=\"checkbox\" name=\"id\" value=\"{id}\" aria-label=\"Select {id}\"></td>\
         <th scope=\"row\"><a href=\"{base}/run/{id}\">{id}</a></th><td class=\"left title\">{}{quick}</td><td class=\"left\">{}</td><td class=\"left\">{state}</td>\
         <td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escaped(&run.heading()),
        escaped(&run.brief),
        run.samples,
        run.failures,
        vtax_report::waiting(run.wall_seconds)
    )
}

/// Returns links to the previous and the next page.
fn turn(base: &str, filter: &Filter<'_>, number: usize, pages: usize) -> String {
    let link = |to: usize, text: &str| {
        let fields = query(&[("words", filter.words), ("state", filter.state), ("page", &to.to_string())]);
        format!("<a href=\"{base}/?{}\">{text}</a>", escaped(&fields))
    };
    let newer = if number > 1 { link(number - 1, "Newer") } else { String::new() };
    let older = if number < pages { link(number + 1, "Older") } else { String::new() };
    match pages {
        1 => String::new(),
        _ => format!(
            "<nav class=\"turn\" aria-label=\"Pages of the list\">{newer} Page {number} of {pages} {older}</nav>\n"
        ),
    }
}
