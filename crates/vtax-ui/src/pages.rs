//! Pages, and error messages shown instead of them.

use std::{path::PathBuf, sync::Arc};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Path, RawQuery, State},
    http::StatusCode,
    middleware,
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use miette::Diagnostic;
use tokio::{sync::Semaphore, task::spawn_blocking};
use vtax_report::{
    self as report,
    html::{PageFrame, PageLink, escaped},
};
use vtax_store::{Condition, RunSummary, Store, StoreError};

use super::{
    chosen::Chosen, guard::guard, key::AccessKey, latest::DrawnFigures, launch::Launcher, list, live, start,
    trends::KnownShifts,
};

/// Number of pages drawn concurrently. Charts occupy a CPU for a second or two.
pub(crate) const DRAWN_TOGETHER: usize = 2;
/// Maximum length of a form in a request.
const LONGEST_BODY: usize = 1 << 10;
/// Maximum number of results on one page.
const OPENED_TOGETHER: usize = 8;
/// Maximum number of samples of the results on one page, in total: drawing reads all of them.
const SAMPLES_TOGETHER: u64 = 250_000;

/// State that every page needs.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) state_dir: PathBuf,
    /// The vtax binary.
    pub(crate) program: PathBuf,
    pub(crate) key: AccessKey,
    pub(crate) figures: DrawnFigures,
    pub(crate) shifts: KnownShifts,
    pub(crate) launcher: Launcher,
    drawing: Arc<Semaphore>,
    /// Watchers of runs in progress.
    pub(crate) watching: Arc<Semaphore>,
}

pub(crate) fn router(state_dir: PathBuf, program: PathBuf, key: AccessKey, launcher: Launcher) -> Router {
    let base = key.base();
    let [drawing, watching] = [DRAWN_TOGETHER, live::WATCHERS].map(|most| Arc::new(Semaphore::new(most)));
    let (figures, shifts) = (DrawnFigures::default(), KnownShifts::default());
    let service = Arc::new(Service { state_dir, program, key, figures, shifts, launcher, drawing, watching });
    let page = |path: &str| format!("{base}{path}");
    Router::new()
        .route(&base, get(results))
        .route(&page("/"), get(results))
        .route(&page("/open"), get(open))
        .route(&page("/start"), get(start::plan).post(start::start))
        .route(&page("/started"), get(start::started))
        .route(&page("/cancel"), post(start::cancel))
        .route(&page("/run/{id}"), get(run))
        .route(&page("/run/{id}/report"), get(so_far))
        .route(&page("/run/{id}/events"), get(live::events))
        .fallback(|| async { (StatusCode::NOT_FOUND, "No such page.\n") })
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(middleware::from_fn_with_state(service.key.clone(), guard))
        .with_state(service)
}

/// Reason why there is no page.
#[derive(Debug)]
pub(crate) struct NoPage {
    status: StatusCode,
    told: String,
}

impl NoPage {
    pub(crate) fn new(status: StatusCode, told: impl Into<String>) -> NoPage {
        NoPage { status, told: told.into() }
    }

    pub(crate) fn drawn(&self, service: &Service) -> Response {
        let frame = PageFrame { title: "vtax: no such page", links: &service.links(), head: "", script: None };
        let page = format!(
            "<main id=\"contents\">\n<h1>Cannot show this page</h1>\n<p>{}</p>\n</main>\n",
            escaped(&self.told)
        );
        (self.status, Html(frame.around(&page))).into_response()
    }
}

impl From<StoreError> for NoPage {
    fn from(error: StoreError) -> NoPage {
        let status = match error {
            StoreError::NotFound { .. } | StoreError::Ambiguous { .. } | StoreError::Empty { .. } => {
                StatusCode::NOT_FOUND
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let code = error.code().map(|code| format!(" (vtax explain {code})")).unwrap_or_default();
        NoPage::new(status, format!("{error}{code}"))
    }
}

impl Service {
    /// Draws a page without delaying other responses. If the client disconnects, drawing continues and keeps its slot,
    /// so that no more than `DRAWN_TOGETHER` pages are ever drawn at the same time.
    pub(crate) async fn draw(
        self: Arc<Service>,
        draw: impl FnOnce(&Service) -> Result<String, NoPage> + Send + 'static,
    ) -> Response {
        self.worked(draw, |page| Html(page).into_response()).await
    }

    /// Does work like [`draw`](Self::draw), and responds with what becomes of its result.
    pub(crate) async fn worked<T: Send + 'static>(
        self: Arc<Service>,
        work: impl FnOnce(&Service) -> Result<T, NoPage> + Send + 'static,
        response: impl FnOnce(T) -> Response,
    ) -> Response {
        let Ok(turn) = Arc::clone(&self.drawing).acquire_owned().await else { unreachable!("it is never closed") };
        let service = Arc::clone(&self);
        let drawn = spawn_blocking(move || {
            let _turn = turn;
            work(&service)
        });
        let drawn = drawn.await;
        let drawn = drawn.unwrap_or_else(|_| {
            Err(NoPage::new(StatusCode::INTERNAL_SERVER_ERROR, "Drawing this page failed: this is a bug in vtax."))
        });
        drawn.map_or_else(|none| none.drawn(&self), response)
    }

    /// Returns the links at the top of every page.
    pub(crate) fn links(&self) -> Vec<PageLink> {
        vec![PageLink { text: "Start page".into(), target: format!("{}/", self.key.base()) }]
    }

    pub(crate) fn all(&self) -> Result<Vec<RunSummary>, NoPage> {
        Ok(Store::reading(&self.state_dir, Store::list)?)
    }

    fn report(&self, ids: &[String]) -> Result<String, NoPage> {
        let documents = ids.iter().map(|id| Store::reading(&self.state_dir, |store| store.document(id)));
        let documents = documents.collect::<Result<Vec<_>, _>>()?;
        let drawn = report::page(&documents, &report::Options::default(), &self.links());
        drawn.map_err(|error| NoPage::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }
}

async fn results(State(service): State<Arc<Service>>, RawQuery(query): RawQuery) -> Response {
    service.draw(move |service| list::page(service, &Chosen::of(query.as_deref()))).await
}

async fn run(State(service): State<Arc<Service>>, Path((id,)): Path<(String,)>) -> Response {
    let goes_on = |run: &RunSummary| run.state == Condition::Running;
    service
        .draw(move |service| match service.all()?.iter().find(|run| run.id == id) {
            Some(run) if goes_on(run) => live::page(service, run),
            _ => service.report(&[id]),
        })
        .await
}

async fn so_far(State(service): State<Arc<Service>>, Path((id,)): Path<(String,)>) -> Response {
    service.draw(move |service| service.report(&[id])).await
}

/// Shows several results on one page, oldest first: the others are compared with it.
async fn open(State(service): State<Arc<Service>>, RawQuery(query): RawQuery) -> Response {
    service
        .draw(move |service| {
            let chosen = Chosen::of(query.as_deref());
            let is_chosen = |run: &&RunSummary| chosen.all("id").any(|id| id == run.id);
            let all = service.all()?;
            let runs: Vec<&RunSummary> = all.iter().rev().filter(is_chosen).collect();
            let samples: u64 = runs.iter().map(|run| u64::from(run.samples)).sum();
            let ids: Vec<String> = runs.iter().map(|run| run.id.clone()).collect();
            match ids.len() {
                0 => Err(NoPage::new(StatusCode::NOT_FOUND, "None of these results exists. Select some in the list.")),
                2.. if samples > SAMPLES_TOGETHER => Err(NoPage::new(
                    StatusCode::BAD_REQUEST,
                    format!(
                        "{samples} samples are too many for one page: select results with {SAMPLES_TOGETHER} or fewer."
                    ),
                )),
                1..=OPENED_TOGETHER => service.report(&ids),
                many => Err(NoPage::new(
                    StatusCode::BAD_REQUEST,
                    format!("{many} results are too many for one page: select {OPENED_TOGETHER} or fewer."),
                )),
            }
        })
        .await
}
