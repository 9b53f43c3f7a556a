//! Connections, limited in number and in time to send a request.
//!
//! Anyone who can reach 127.0.0.1 can connect, so a connection is protected only once it has shown the key. If all
//! places are taken, the next connection replaces one that hasn't shown the key: the oldest of the user with the most
//! of them. A client with a wrong key is refused and disconnected (`guard`).

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::sleep,
};
use vtax_sys::netlink::{UserId, owner_of_peer};

use super::UiError;

/// Maximum number of concurrent connections.
pub(crate) const CONNECTIONS: usize = 64;
/// Timeout from the connection, or the last response, to the next complete request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a request's head.
const LONGEST_HEAD: usize = 32 << 10;
/// Delay before the next attempt if accepting fails: the kernel may have no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn serve(listener: TcpListener, router: Router) -> Result<(), UiError> {
    let places = Places::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        // All places may be taken by clients with the key. This connection is then closed here.
        if let Some(place) = places.take(user(&stream)) {
            tokio::spawn(answer(stream, Arc::new(place), router.clone()));
        }
    }
}

/// Serves a connection until the client closes it, its time is up, or another connection takes its place.
async fn answer(stream: TcpStream, place: Arc<ConnectionPlace>, router: Router) {
    let (router, asking) = (TowerToHyperService::new(router), Arc::clone(&place));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&asking));
        router.call(request)
    });
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(LONGEST_HEAD);
    let served = connection.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A client that closes the connection, or doesn't speak HTTP, gets no response.
        _ = served => {}
        () = place.seat.lost.notified() => {}
    }
}

/// Returns the user of the program at the other end, if the kernel reports it.
fn user(stream: &TcpStream) -> Option<UserId> {
    let (SocketAddr::V4(own), SocketAddr::V4(peer)) = (stream.local_addr().ok()?, stream.peer_addr().ok()?) else {
        return None;
    };
    owner_of_peer(own, peer).ok()?
}

/// All connections, in order of arrival.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    last: u64,
    seats: BTreeMap<u64, Arc<Seat>>,
}

struct Seat {
    user: Option<UserId>,
    /// Set once the key has been shown.
    trusted: AtomicBool,
    lost: Notify,
}

/// Place of one connection, which is released on drop.
pub(crate) struct ConnectionPlace {
    all: Places,
    number: u64,
    seat: Arc<Seat>,
}

impl ConnectionPlace {
    /// Protects this place from now on.
    pub(crate) fn trust(&self) {
        self.seat.trusted.store(true, Ordering::Relaxed);
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.all.locked().seats.remove(&self.number);
    }
}

impl Places {
    fn locked(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection. Returns `None` if all are taken by connections that have shown the key.
    fn take(&self, user: Option<UserId>) -> Option<ConnectionPlace> {
        let mut taken = self.locked();
        if taken.seats.len() >= CONNECTIONS {
            let number = taken.least_worth()?;
            taken.seats.remove(&number)?.lost.notify_one();
        }
        taken.last += 1;
        let (number, seat) = (taken.last, Arc::new(Seat { user, trusted: AtomicBool::default(), lost: Notify::new() }));
        taken.seats.insert(number, Arc::clone(&seat));
        Some(ConnectionPlace { all: self.clone(), number, seat })
    }
}

impl Taken {
    /// Returns the oldest connection that hasn't shown the key, of the user with the most of these.
    fn least_worth(&self) -> Option<u64> {
        let mut of_users: BTreeMap<Option<u32>, Vec<u64>> = BTreeMap::new();
        let strangers = self.seats.iter().filter(|(_, seat)| !seat.trusted.load(Ordering::Relaxed));
        for (number, seat) in strangers {
            of_users.entry(seat.user.map(|user| user.0)).or_default().push(*number);
        }
        of_users.into_values().max_by_key(Vec::len)?.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_with_most_connections_gives_up_its_oldest() {
        let places = Places::default();
        let of = |user| places.take(Some(UserId(user))).expect("a place");
        let (own, hostile) = (of(1000), (1..CONNECTIONS).map(|_| of(1001)).collect::<Vec<_>>());
        let more: Vec<ConnectionPlace> = (0..200).map(|_| of(1001)).collect();
        let is_there = |place: &ConnectionPlace| places.locked().seats.contains_key(&place.number);
        assert!(is_there(&own) && !hostile.iter().any(is_there));
        assert_eq!(more.iter().filter(|place| is_there(place)).count(), CONNECTIONS - 1);
        drop(more);
        assert_eq!(places.locked().seats.len(), 1);
    }

    #[test]
    fn an_authenticated_client_stays() {
        let places = Places::default();
        let of = |user| places.take(Some(UserId(user)));
        let known: Vec<ConnectionPlace> = (0..CONNECTIONS).map(|_| of(1000).expect("a place")).collect();
        known.iter().for_each(ConnectionPlace::trust);
        assert!(of(1001).is_none() && of(1000).is_none());
        drop(known);
        assert!(of(1001).is_some());
    }
}
