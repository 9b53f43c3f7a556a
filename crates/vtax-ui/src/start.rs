//! Pages that start a built-in study: its plan first, which changes nothing, then the study, then its end.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use vtax_model::study::Study;
use vtax_report::html::{PageFrame, PageScript, escaped};
use vtax_store::RunSummary;

use super::{
    chosen::Chosen,
    launch::{LaunchedState, NotStarted, StartableStudy},
    list::STYLE,
    machine,
    pages::{NoPage, Service},
};

/// Time limit of a dry run, which compares the study with the latest run and this machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Seconds after which a browser without scripts reloads the page of a running study.
const RELOAD: u32 = 5;

const SCRIPT: PageScript<'_> =
    PageScript { text: include_str!("started.js"), hash: include_str!(concat!(env!("OUT_DIR"), "/started.js.sha256")) };

/// Returns the form that shows a plan; its button changes nothing. `base` is the prefix of all paths.
pub(crate) fn form(base: &str, chosen: Option<StartableStudy>) -> String {
    let option = |(id, _): (&'static str, &str)| {
        let title = Study::built_in(id).map(|study| study.title.to_string()).unwrap_or_default();
        let selected = if chosen.is_some_and(|chosen| chosen.id == id) { " selected" } else { "" };
        format!("<option value=\"{id}\"{selected}>{id}: {}</option>", escaped(&title))
    };
    let options: String = Study::BUILT_IN.into_iter().map(option).collect();
    let quick = if chosen.is_some_and(|chosen| chosen.quick) { " checked" } else { "" };
    format!(
        "<form class=\"filter\" action=\"{base}/start\">\n\
         <label>Study <select name=\"study\">{options}</select></label>\n\
         <label class=\"check\"><input type=\"checkbox\" name=\"quick\"{quick}> Short samples, few rounds</label>\n\
         <button>Show the plan</button>\n</form>\n"
    )
}

/// Returns the section of the start page.
pub(crate) fn section(service: &Service, all: &[RunSummary]) -> String {
    let base = service.key.base();
    let contents = match service.launcher.state() {
        Some(state) if state.ended.is_none() => {
            progress(&base, &state, all) + &format!("<p><a href=\"{base}/started\">Follow its messages</a></p>\n")
        }
        _ => form(&base, None),
    };
    format!("<section aria-label=\"Start a study\">\n<h2>Start a study</h2>\n{contents}</section>\n")
}

/// Shows the plan of a study, or the form to choose one.
pub(crate) async fn plan(State(service): State<Arc<Service>>, RawQuery(query): RawQuery) -> Response {
    let drawn = service.draw(move |service| {
        let chosen = Chosen::of(query.as_deref());
        if service.launcher.state().is_some_and(|state| state.ended.is_none()) {
            return Err(refused(&NotStarted::Busy));
        }
        match StartableStudy::of(&chosen) {
            Some(study) => offered(service, study),
            None if chosen.one("study").is_empty() => {
                Ok(page(service, "Start a study", &form(&service.key.base(), None)))
            }
            None => Err(NoPage::new(
                StatusCode::NOT_FOUND,
                format!("There is no built-in study named {}. The start page lists all of them.", chosen.one("study")),
            )),
        }
    });
    drawn.await
}

fn offered(service: &Service, study: StartableStudy) -> Result<String, NoPage> {
    let base = service.key.base();
    let agent = service.launcher.agent.as_ref().map(|file| file.to_string_lossy());
    let agent = agent.as_deref().map(|file| ["--agent", file]).into_iter().flatten();
    let arguments: Vec<&str> = study.arguments().into_iter().chain(["--dry-run"]).chain(agent).collect();
    let planned = machine::printed(&arguments, &service.program, &service.state_dir, PATIENCE);
    let command = escaped(&study.command());
    let planned = match planned {
        Ok(plan) => {
            let key = service.launcher.offer(study).map_err(|error| refused(&error.into()))?;
            let confirm = format!(
                "<form class=\"confirm\" method=\"post\" action=\"{base}/start\">\n\
                 <input type=\"hidden\" name=\"plan\" value=\"{key}\">\n\
                 <p>The study builds what the plan lists, measures, and removes it again. Until it ends, other work on this \
                 machine disturbs the figures.</p>\n\
                 <p><button>Start {}</button> <a href=\"{base}/\">Don't start</a></p>\n</form>\n",
                study.id
            );
            let plan = shown("Plan", &plan);
            format!("<p>Plan of <code>{command}</code>. Nothing has been changed.</p>\n{plan}{confirm}")
        }
        Err(error) => {
            let error = shown("Messages", &error);
            format!("<p><code>{command}</code> cannot run here. Nothing has been changed.</p>\n{error}")
        }
    };
    let contents = format!("{planned}<h2>Another plan</h2>\n{}", form(&base, Some(study)));
    Ok(page(service, &format!("Start {}?", study.id), &contents))
}

/// Starts the study whose plan was shown, and leads to its page.
pub(crate) async fn start(State(service): State<Arc<Service>>, body: String) -> Response {
    let target = format!("{}/started", service.key.base());
    let work = move |service: &Service| {
        let newest = service.all()?.first().map(|run| run.id.clone());
        let chosen = Chosen::of(Some(&body));
        let started = service.launcher.start(chosen.one("plan"), &service.program, &service.state_dir, newest);
        started.map_err(|error| refused(&error))
    };
    service.worked(work, move |()| Redirect::to(&target).into_response()).await
}

/// Interrupts the running study.
pub(crate) async fn cancel(State(service): State<Arc<Service>>) -> Response {
    let target = format!("{}/started", service.key.base());
    match service.launcher.cancel() {
        Ok(()) => Redirect::to(&target).into_response(),
        Err(error) => refused(&error.into()).drawn(&service),
    }
}

/// Shows the study that was started last.
pub(crate) async fn started(State(service): State<Arc<Service>>) -> Response {
    let drawn = service.draw(|service| {
        let base = service.key.base();
        let Some(state) = service.launcher.state() else {
            return Ok(page(service, "Start a study", &form(&base, None)));
        };
        let all = service.all()?;
        Ok(match state.ended {
            None => page(service, &format!("{} is running", state.study.id), &progress(&base, &state, &all)),
            Some(status) => {
                let title = match status.success() {
                    true => format!("{} has ended", state.study.id),
                    false if state.is_cancelled => format!("{} was cancelled", state.study.id),
                    false => format!("{} has failed", state.study.id),
                };
                page(
                    service,
                    &title,
                    &(ended(&base, &state, &all) + "<h2>Another plan</h2>\n" + &form(&base, Some(state.study))),
                )
            }
        })
    });
    drawn.await
}

/// State of a running study, with a button to cancel it.
fn progress(base: &str, state: &LaunchedState, all: &[RunSummary]) -> String {
    let command = escaped(&state.study.command());
    let watch = match newest(state, all) {
        Some(run) => format!(
            "<a href=\"{base}/run/{id}\">Watch {id}</a>: {} samples so far.",
            run.samples,
            id = escaped(&run.id)
        ),
        None => "No samples yet.".to_owned(),
    };
    let interrupted = match state.is_cancelled {
        true => "<p>The run was interrupted. It is saving its samples and restoring the host.</p>\n",
        false => "",
    };
    let cancel = match state.is_cancelled {
        true => String::new(),
        false => format!(
            "<form method=\"post\" action=\"{base}/cancel\">\n<p><button>Cancel the run</button> <small class=\"faint\">\
             Like Ctrl-C: samples taken so far are saved, and the host is restored.</small></p>\n</form>\n"
        ),
    };
    format!(
        "<div id=\"progress\">\n<p><code>{command}</code> is running. {watch}</p>\n{interrupted}{}</div>\n\
         <p id=\"state\" role=\"status\"></p>\n{cancel}",
        messages(&state.told)
    )
}

fn ended(base: &str, state: &LaunchedState, all: &[RunSummary]) -> String {
    let run = newest(state, all).map_or(String::new(), |run| {
        format!("<p>Result: <a href=\"{base}/run/{id}\">{id}</a></p>\n", id = escaped(&run.id))
    });
    format!("{run}{}", messages(&state.told))
}

/// Returns the run of a started study; the list begins with the newest.
fn newest<'a>(state: &LaunchedState, all: &'a [RunSummary]) -> Option<&'a RunSummary> {
    let is_later = |run: &&RunSummary| Some(&run.id) != state.newest_before.as_ref();
    let is_its = |run: &&RunSummary| run.id.starts_with(&format!("{}-", state.study.id));
    all.iter().take_while(is_later).filter(is_its).last()
}

fn messages(told: &str) -> String {
    if told.is_empty() { String::new() } else { shown("Messages", told) }
}

/// Returns the output of a command.
fn shown(name: &str, text: &str) -> String {
    format!("<pre role=\"region\" tabindex=\"0\" aria-label=\"{name}\">{}</pre>\n", escaped(text))
}

fn refused(why: &NotStarted) -> NoPage {
    let status = match why {
        NotStarted::Stale | NotStarted::Busy => StatusCode::CONFLICT,
        NotStarted::Kernel(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    NoPage::new(status, why.to_string())
}

fn page(service: &Service, title: &str, contents: &str) -> String {
    let is_running = service.launcher.state().is_some_and(|state| state.ended.is_none());
    let reload = match is_running {
        true => format!("<noscript><meta http-equiv=\"refresh\" content=\"{RELOAD}\"></noscript>\n"),
        false => String::new(),
    };
    let head = format!("{reload}<style>{STYLE}</style>\n");
    PageFrame {
        title: "vtax: start a study",
        links: &service.links(),
        head: &head,
        script: is_running.then_some(SCRIPT),
    }
    .around(&format!("<main id=\"contents\">\n<h1>{}</h1>\n{contents}</main>\n", escaped(title)))
}
