//! Run in progress: a page that updates as samples are stored. Without scripts the browser reloads it periodically.
//!
//! The machine is measuring, so a watcher checks the store only once per second, and updates the page less often the
//! longer an update takes.

use std::{
    convert::Infallible,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use tokio::{
    sync::mpsc::{Sender, channel},
    task::spawn_blocking,
};
use tokio_stream::wrappers::ReceiverStream;
use vtax_report::{
    html::{PageFrame, PageScript, article, escaped},
    under_way,
};
use vtax_run::{LiveRun, RunEvent, RunFollower};
use vtax_store::{RunSummary, StoreError};

use super::pages::{NoPage, Service};

/// Maximum number of concurrent watchers.
pub(crate) const WATCHERS: usize = 8;
/// Interval at which the store is checked.
const LOOK: Duration = Duration::from_secs(1);
/// Divisor of the time share that a watcher may use for computation,
const SHARE: u32 = 50;
/// but a watcher doesn't wait longer than this.
const LONGEST: Duration = Duration::from_secs(10);
/// Seconds after which a browser without scripts reloads the page.
const RELOAD: u32 = 5;

const SCRIPT: PageScript<'_> =
    PageScript { text: include_str!("live.js"), hash: include_str!(concat!(env!("OUT_DIR"), "/live.js.sha256")) };

/// Returns the page of a run in progress.
pub(crate) fn page(service: &Service, run: &RunSummary) -> Result<String, NoPage> {
    let mut follower = RunFollower::new(service.state_dir.clone(), run.id.clone());
    let mut live = LiveRun::default();
    while catch_up(&mut follower, &mut live)?.is_some() {}
    let (base, id) = (service.key.base(), escaped(&run.id));
    let head = format!(
        "<noscript><meta http-equiv=\"refresh\" content=\"{RELOAD}\"></noscript>\n\
         <style>#state {{ color: var(--faint); }}</style>\n"
    );
    let frame = PageFrame { title: &run.title, links: &service.links(), head: &head, script: Some(SCRIPT) };
    Ok(frame.around(&format!(
        "<main id=\"contents\" data-events=\"{base}/run/{id}/events\">\n<div id=\"live\">{}</div>\n\
         <p id=\"state\" role=\"status\">The run {id} is in progress. This page updates as samples are stored.</p>\n\
         <p><a href=\"{base}/run/{id}/report\">Interim report</a></p>\n</main>\n",
        fragment(&live)
    )))
}

/// Returns the dynamic part of the page.
fn fragment(live: &LiveRun) -> String {
    live.run().map_or(String::new(), |run| article("run", &under_way(run, &live.progress())))
}

/// Processes new events. Returns `None` if there are none, otherwise `true` if the run has ended.
fn catch_up(follower: &mut RunFollower, live: &mut LiveRun) -> Result<Option<bool>, StoreError> {
    let events = follower.events()?;
    events.iter().for_each(|event| live.take(event));
    let ended = events.iter().any(|event| matches!(event, RunEvent::End(_)));
    Ok((!events.is_empty()).then_some(ended))
}

/// Streams the dynamic part: events `run`, whose data is HTML, and finally `end`.
pub(crate) async fn events(State(service): State<Arc<Service>>, Path((id,)): Path<(String,)>) -> Response {
    let Ok(place) = Arc::clone(&service.watching).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many windows are watching runs.\n").into_response();
    };
    let (sender, receiver) = channel(1);
    let follower = RunFollower::new(service.state_dir.clone(), id);
    spawn_blocking(move || {
        // A store that becomes unreadable ends the stream. The page reports that, and reloading it shows the reason.
        let _ = watch(follower, &sender);
        drop(place);
    });
    Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()).into_response()
}

/// Sends changes until the run has ended or the watcher has disconnected.
fn watch(mut follower: RunFollower, sender: &Sender<Result<Event, Infallible>>) -> Result<(), StoreError> {
    let mut live = LiveRun::default();
    while !sender.is_closed() {
        let begun = Instant::now();
        let mut news = None;
        while let Some(ended) = catch_up(&mut follower, &mut live)? {
            news = Some(ended);
        }
        let event = match news {
            None => None,
            Some(false) => Some(Event::default().event("run").data(fragment(&live))),
            Some(true) => Some(Event::default().event("end").data("The run has ended.")),
        };
        if event.is_some_and(|event| sender.blocking_send(Ok(event)).is_err()) || news == Some(true) {
            break;
        }
        thread::sleep((begun.elapsed() * SHARE).clamp(LOOK, LONGEST));
    }
    Ok(())
}
