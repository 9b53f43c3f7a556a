//! Connections, of which there may be so many, and which must ask something in time.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};

use super::UiError;

/// Connections at a time. The others wait in the kernel.
pub(crate) const CONNECTIONS: usize = 64;
/// From the connection, or the last answer, to the next whole request.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest head of a request.
const LONGEST_HEAD: usize = 32 << 10;
/// Until the next try, if the kernel gives no connection: it may have no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn serve(listener: TcpListener, router: Router) -> Result<(), UiError> {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut connection = http1::Builder::new();
            connection.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(LONGEST_HEAD);
            // Whoever breaks a connection off, or asks what is no HTTP, gets no answer.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}
