//! Reports as one HTML file without network access or companion files; everything works without scripts. The pages of
//! `vtax ui` use the same frame.

mod escape;
mod table;

use std::fmt::Write as _;

use vtax_plot::{
    Chart, Heading, Overview, OverviewLayout, PAGE_SCRIPT, PlotError, Plotter, page_script_hash, page_style,
};

use super::{
    topic::ChartGroup,
    view::{DrawnPath, PathLink, PathStation, Section, SectionPart, View},
};

pub use escape::escaped;

const STYLE: &str = include_str!("html/page.css");

/// Report in a page.
pub(crate) struct Article {
    /// ID of the run.
    pub(crate) id: String,
    pub(crate) view: View,
    /// Figure above all others.
    pub(crate) overview: Option<Overview>,
    pub(crate) charts: Vec<ChartGroup>,
}

/// Link to another page.
#[derive(Debug, Clone)]
pub struct PageLink {
    pub text: String,
    pub target: String,
}

/// Frame of a page around its contents.
#[derive(Debug, Clone, Copy)]
pub struct PageFrame<'a> {
    /// Title of the browser tab.
    pub title: &'a str,
    /// Links to other pages, at the top. A file has none.
    pub links: &'a [PageLink],
    /// Elements of the page's head, as HTML.
    pub head: &'a str,
    /// Script after the contents.
    pub script: Option<PageScript<'a>>,
}

/// Inline script of a page, which the page's Content-Security-Policy allows by its hash.
#[derive(Debug, Clone, Copy)]
pub struct PageScript<'a> {
    /// JavaScript source, inserted into a `<script>` element without escaping.
    pub text: &'a str,
    /// Hash of the script as the policy names it: `sha256-…`.
    pub hash: &'a str,
}

impl PageFrame<'_> {
    /// Returns the page with these contents, which are HTML. Its policy allows nothing but its own style and script;
    /// where a server delivers the page, the script may send requests to that server.
    pub fn around(&self, contents: &str) -> String {
        let script = |PageScript { text, .. }: PageScript<'_>| format!("<script>{text}</script>\n");
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n{}\
             <title>{}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#contents\">Skip to contents</a>\n{}{contents}{}</body>\n</html>\n",
            self.policy(),
            self.head,
            escaped(self.title),
            page_style(),
            navigation(self.links),
            self.script.map(script).unwrap_or_default(),
        )
    }

    /// Content-Security-Policy of the page.
    fn policy(&self) -> String {
        let script = self.script.map(|script| format!("; script-src '{}'", script.hash)).unwrap_or_default();
        let served = if self.links.is_empty() { "" } else { "; connect-src 'self'; form-action 'self'" };
        format!("default-src 'none'; style-src 'unsafe-inline'{script}{served}")
    }
}

fn navigation(links: &[PageLink]) -> String {
    let link = |PageLink { text, target }: &PageLink| {
        format!("<li><a href=\"{}\">{}</a></li>\n", escaped(target), escaped(text))
    };
    let all: String = links.iter().map(link).collect();
    if all.is_empty() { all } else { format!("<nav class=\"pages\" aria-label=\"Pages\">\n<ul>\n{all}</ul>\n</nav>\n") }
}

/// Returns a page of reports, one below the other; `title` is the title of the browser tab.
pub(crate) fn page(title: &str, links: &[PageLink], articles: &[Article]) -> Result<String, PlotError> {
    let plotter = Plotter::new()?;
    let contents = if articles.len() > 1 { contents(articles) } else { String::new() };
    let reports = articles.iter().map(|article| report(article, &plotter)).collect::<Result<String, _>>()?;
    let script = PageScript { text: PAGE_SCRIPT, hash: page_script_hash() };
    let frame = PageFrame { title, links, head: "", script: Some(script) };
    Ok(frame.around(&format!("{contents}<main id=\"contents\">\n{reports}</main>\n")))
}

/// Links to each report.
fn contents(articles: &[Article]) -> String {
    let entry = |Article { id, view, .. }: &Article| {
        format!("<li><a href=\"#{}\">{}</a> <small>{}</small></li>\n", anchor(id), escaped(&view.title), escaped(id))
    };
    let entries: String = articles.iter().map(entry).collect();
    format!("<nav aria-label=\"Reports\">\n<ol>\n{entries}</ol>\n</nav>\n")
}

/// The overview in both arrangements, of which the page's style shows the one that fits the screen.
fn overview(overview: &Overview, plotter: &Plotter) -> Result<String, PlotError> {
    let arranged = |(layout, class): (OverviewLayout, &str)| {
        let chart = Overview { layout, ..overview.clone() }.into();
        let drawn = plotter.page_spec(&chart)?.figure(&plotter.svg(&chart)?);
        Ok(format!("<div class=\"{class}\">\n{drawn}\n</div>\n"))
    };
    let layouts = [(OverviewLayout::Wide, "wide"), (OverviewLayout::Narrow, "narrow")];
    let drawn = layouts.into_iter().map(arranged).collect::<Result<String, PlotError>>()?;
    let Heading { title, summary } = &overview.heading;
    let titled = format!("<h2>{}</h2>\n<p>{}</p>", escaped(title), escaped(summary));
    Ok(format!("<section class=\"overview\" aria-label=\"Overview\">\n{titled}\n{drawn}</section>\n"))
}

/// The overview alone, as wide as a phone.
pub(crate) fn small(overview: Overview) -> Result<String, PlotError> {
    let chart = Overview { layout: OverviewLayout::Narrow, ..overview }.into();
    Ok(format!("<figure class=\"plot-figure\">{}</figure>\n", Plotter::new()?.svg(&chart)?.as_str()))
}

/// Charts by the question that they answer, next to each other, as many as fit.
fn gallery(groups: &[ChartGroup], plotter: &Plotter) -> Result<String, PlotError> {
    let figure = |chart: &Chart| {
        let Heading { title, summary } = chart.heading();
        let drawn = plotter.page_spec(chart)?.figure(&plotter.svg(chart)?);
        let titled = format!("<h3>{}</h3>\n<p>{}</p>", escaped(title), escaped(summary));
        Ok(format!("<div class=\"chart\">\n{titled}\n{drawn}\n</div>\n"))
    };
    let section = |ChartGroup { title, charts }: &ChartGroup| {
        let figures = charts.iter().map(figure).collect::<Result<String, PlotError>>()?;
        let heading = if title.is_empty() { String::new() } else { format!("<h2>{title}</h2>\n") };
        let label = if title.is_empty() { "Charts" } else { title };
        Ok(format!("<section aria-label=\"{label}\">\n{heading}<div class=\"charts\">\n{figures}</div>\n</section>\n"))
    };
    groups.iter().map(section).collect()
}

/// Anchor name for a link from any text.
fn anchor(text: &str) -> String {
    text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

fn report(article: &Article, plotter: &Plotter) -> Result<String, PlotError> {
    let overview = article.overview.as_ref().map(|one| overview(one, plotter)).transpose()?;
    Ok(titled(&article.id, &article.view, [&overview.unwrap_or_default(), &gallery(&article.charts, plotter)?]))
}

/// Returns a view as a part of a page; `id` distinguishes it from the page's other parts.
pub fn article(id: &str, view: &View) -> String {
    titled(id, view, ["", ""])
}

fn titled(id: &str, view: &View, [overview, gallery]: [&str; 2]) -> String {
    let id = anchor(id);
    let mut text = format!("<article id=\"{id}\" aria-labelledby=\"{id}-title\">\n");
    let (first, others) = view.facts.split_at(view.facts.len().min(1));
    let _ = writeln!(text, "<header>\n<h1 id=\"{id}-title\">{}</h1>\n{}</header>", escaped(&view.title), facts(first));
    if let Some(answer) = &view.answer {
        let parts: String = answer.parts.iter().map(part).collect();
        let _ = writeln!(text, "<section class=\"answer\" aria-label=\"Answer\">\n{parts}</section>");
    }
    text += overview;
    for warning in &view.warnings {
        let _ = writeln!(text, "<p class=\"warning\" role=\"note\">{}</p>", escaped(warning));
    }
    text += gallery;
    text += &view.sections.iter().map(section).collect::<String>();
    if !others.is_empty() {
        text += &format!("<details>\n<summary><h2>Measurement details</h2></summary>\n{}</details>\n", facts(others));
    }
    text + "</article>\n"
}

fn facts(facts: &[(&'static str, String)]) -> String {
    let fact = |(name, text): &(&'static str, String)| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(name), escaped(text))
    };
    let all: String = facts.iter().map(fact).collect();
    if all.is_empty() { all } else { format!("<dl>\n{all}</dl>\n") }
}

fn section(section: &Section) -> String {
    let parts: String = section.parts.iter().map(part).collect();
    let title = escaped(&section.title);
    match (section.title.is_empty(), section.folded) {
        (true, _) => format!("<section>\n{parts}</section>\n"),
        (false, false) => format!("<section>\n<h2>{title}</h2>\n{parts}</section>\n"),
        (false, true) => {
            format!("<details>\n<summary><h2>{title}</h2></summary>\n{parts}</details>\n")
        }
    }
}

fn part(part: &SectionPart) -> String {
    match part {
        SectionPart::Table(table) => table::draw(table),
        SectionPart::Paragraph(text) => format!("<p>{}</p>\n", escaped(text)),
        SectionPart::List(items) => list(items),
        SectionPart::Path(path) => draw_path(path),
    }
}

/// Draws a box for each domain, with a box for each of its links.
fn draw_path(path: &DrawnPath) -> String {
    let link = |PathLink { name, facts }: &PathLink| {
        let facts: String = facts.iter().map(|fact| format!("<li>{}</li>", escaped(fact))).collect();
        format!("<li><b>{}</b><ul>{facts}</ul></li>", escaped(name))
    };
    let station = |PathStation { domain, links }: &PathStation| {
        let links: String = links.iter().map(link).collect();
        format!("<li><strong>{}</strong>\n<ol>{links}</ol></li>\n", escaped(domain))
    };
    let stations: String = path.stations.iter().map(station).collect();
    let remarks: String = path.remarks.iter().map(|remark| format!("<p>{}</p>\n", escaped(remark))).collect();
    format!(
        "<figure class=\"path\">\n<figcaption>{}</figcaption>\n<ol>\n{stations}</ol>\n{remarks}</figure>\n",
        escaped(&path.title)
    )
}

fn list(items: &[(String, String)]) -> String {
    let item = |(mark, text): &(String, String)| match mark.as_str() {
        "-" => format!("<li>{}</li>\n", led(text)),
        mark => format!("<li value=\"{}\">{}</li>\n", mark.trim_matches(['[', ']']), escaped(text)),
    };
    let marked = items.iter().any(|(mark, _)| mark != "-");
    let tag = if marked { "ol" } else { "ul" };
    format!("<{tag}>\n{}</{tag}>\n", items.iter().map(item).collect::<String>())
}

/// Sets the text before the first colon, the topic, in bold.
fn led(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.split_once(": ").filter(|(lead, _)| lead.len() <= LONGEST) {
        Some((lead, rest)) => format!("<strong>{}</strong>: {}", escaped(lead), escaped(rest)),
        None => escaped(text),
    }
}
