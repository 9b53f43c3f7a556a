//! State shared by the server's threads: the table, the objects that serve it, and the sessions.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use vtax_model::topology::Name;
use vtax_sys::netlink::UserId;

use crate::{
    bounds::Bounds,
    console::{Hub, SeatId},
    event::{Attendant, ServerEvent},
    lock::locked,
    outbox::Outbox,
    table::{Console, ConsoleAccess, ConsoleGroup, ConsoleId, ConsoleTable, GroupName},
    waker::Waker,
};

/// Stack size of a thread. They need little, and there may be a thousand of them.
const STACK: usize = 256 << 10;
const ROOT: UserId = UserId(0);

pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.into()).stack_size(STACK).spawn(run)
}

/// State of a server.
pub(crate) struct Registry {
    /// Host name shown in prompts.
    pub(crate) host: String,
    pub(crate) bounds: Bounds,
    pub(crate) attendant: Arc<dyn Attendant>,
    /// Wakes the thread that accepts connections.
    pub(crate) waker: Waker,
    serving: Mutex<Serving>,
    sessions: Mutex<Sessions>,
    session_gone: Condvar,
    stopping: AtomicBool,
    /// Number of the current table, by which sessions notice a new one.
    tables: AtomicU64,
}

/// Table and the objects that serve it.
#[derive(Default)]
struct Serving {
    table: ConsoleTable,
    hubs: BTreeMap<(ConsoleId, Name), Arc<Hub>>,
    listeners: BTreeMap<u16, Arc<TcpListener>>,
    /// Ports and domains about which the owner has already been notified.
    troubles: BTreeSet<String>,
}

#[derive(Default)]
struct Sessions {
    last: u64,
    places: BTreeMap<SeatId, Place>,
}

struct Place {
    /// `None` if the kernel doesn't know the user.
    user: Option<UserId>,
    outbox: Arc<Outbox>,
    choosing_since: Option<Instant>,
    ended: Arc<AtomicBool>,
}

/// Console as seen by a session.
#[derive(Clone)]
pub(crate) struct GroupMember {
    pub(crate) console: Console,
    /// `None` if no thread can be started for it.
    pub(crate) hub: Option<Arc<Hub>>,
}

/// Group as seen by a session.
pub(crate) struct GroupView {
    pub(crate) members: Vec<GroupMember>,
}

impl Registry {
    pub(crate) fn new(host: String, bounds: Bounds, attendant: Arc<dyn Attendant>) -> io::Result<Registry> {
        Ok(Registry {
            host,
            bounds,
            attendant,
            waker: Waker::new()?,
            serving: Mutex::default(),
            sessions: Mutex::default(),
            session_gone: Condvar::new(),
            stopping: AtomicBool::new(false),
            tables: AtomicU64::new(0),
        })
    }

    /// Serves the consoles in this table, and no others.
    pub(crate) fn replace(&self, table: ConsoleTable) {
        let mut serving = locked(&self.serving);
        // Checked under the lock; otherwise a table could be installed after the end.
        if self.is_stopping() || serving.table == table {
            return;
        }
        serving.table = table;
        drop(serving);
        self.settle();
        self.tell_sessions();
    }

    /// Returns the number of the current table.
    pub(crate) fn table_number(&self) -> u64 {
        self.tables.load(Ordering::SeqCst)
    }

    fn tell_sessions(&self) {
        self.tables.fetch_add(1, Ordering::SeqCst);
        locked(&self.sessions).places.values().for_each(|place| place.outbox.waker().wake());
    }

    /// Opens and closes ports and consoles as the table requires. Failures are retried at the next call.
    pub(crate) fn settle(&self) {
        let mut serving = locked(&self.serving);
        let closed = serving.leave();
        let opened = serving.open_ports(self);
        serving.start_consoles(self);
        drop(serving);
        if closed || opened {
            self.waker.wake();
        }
    }

    /// Returns the group that has a port, and its access list. Both come from the same table; otherwise a client of a
    /// group that is removed in between would take a slot before its session notices.
    pub(crate) fn group_at(&self, port: u16) -> Option<(GroupName, ConsoleAccess)> {
        let serving = locked(&self.serving);
        let group = serving.table.groups().find(|group| group.port == port)?;
        Some((group.name.clone(), group.access.clone()))
    }

    pub(crate) fn group(&self, name: &GroupName) -> Option<GroupView> {
        let serving = locked(&self.serving);
        let group = serving.table.group(name)?;
        let member = |console: &Console| GroupMember {
            hub: serving.hubs.get(&(console.id, console.domain.clone())).map(Arc::clone),
            console: console.clone(),
        };
        Some(GroupView { members: group.consoles.iter().map(member).collect() })
    }

    pub(crate) fn listeners(&self) -> Vec<Arc<TcpListener>> {
        locked(&self.serving).listeners.values().map(Arc::clone).collect()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Ends all sessions and consoles, and waits briefly for sessions to read their last output.
    pub(crate) fn stop(&self, patience: Duration) {
        let mut serving = locked(&self.serving);
        self.stopping.store(true, Ordering::SeqCst);
        serving.table = ConsoleTable::default();
        drop(serving);
        self.settle();
        self.tell_sessions();
        self.waker.wake();
        let sessions = locked(&self.sessions);
        let still_there = |sessions: &mut Sessions| !sessions.places.is_empty();
        let _ = self.session_gone.wait_timeout_while(sessions, patience, still_there);
    }

    /// Returns `true` if a user may use a group. A missing group permits everyone: its sessions end by themselves.
    pub(crate) fn allows(&self, group: &GroupName, user: Option<UserId>) -> bool {
        let serving = locked(&self.serving);
        serving.table.group(group).is_none_or(|group| group.access.allows(user))
    }

    /// Returns a new session without a console; `None` if there are too many sessions.
    pub(crate) fn admit(self: &Arc<Self>, peer: SocketAddr, user: Option<UserId>) -> io::Result<Option<Ticket>> {
        let outbox = Arc::new(Outbox::new(self.bounds.output)?);
        let mut sessions = locked(&self.sessions);
        if !sessions.have_room_for(user, &self.bounds) {
            drop(sessions);
            self.attendant.hear(&ServerEvent::TooManySessions { peer });
            return Ok(None);
        }
        sessions.last += 1;
        let (id, ended) = (SeatId(sessions.last), Arc::new(AtomicBool::new(false)));
        let (outbox_of_place, ended_of_place) = (Arc::clone(&outbox), Arc::clone(&ended));
        let choosing_since = Some(Instant::now());
        let place = Place { user, outbox: outbox_of_place, choosing_since, ended: ended_of_place };
        sessions.places.insert(id, place);
        sessions.end_the_oldest(self.bounds.choosing);
        Ok(Some(Ticket { registry: Arc::clone(self), id, outbox, ended }))
    }
}

impl Serving {
    /// Closes ports and consoles that are no longer in the table. Returns `true` if a port was closed.
    fn leave(&mut self) -> bool {
        let ports: BTreeSet<u16> = self.table.groups().map(|group| group.port).collect();
        let consoles: BTreeSet<_> = self.table.consoles().map(|console| (console.id, &console.domain)).collect();
        let before = self.listeners.len();
        self.listeners.retain(|port, _| ports.contains(port));
        self.hubs.retain(|(id, domain), hub| {
            let stays = consoles.contains(&(*id, domain));
            if !stays {
                hub.close();
            }
            stays
        });
        before != self.listeners.len()
    }

    /// Returns `true` if a port was opened.
    fn open_ports(&mut self, registry: &Registry) -> bool {
        let before = self.listeners.len();
        let is_missing = |group: &&ConsoleGroup| !self.listeners.contains_key(&group.port);
        let missing: Vec<u16> = self.table.groups().filter(is_missing).map(|group| group.port).collect();
        for port in &missing {
            match listen(*port) {
                Ok(listener) => {
                    self.listeners.insert(*port, Arc::new(listener));
                    if self.troubles.remove(&port.to_string()) {
                        registry.attendant.hear(&ServerEvent::PortOpen { port: *port });
                    }
                }
                Err(why) if self.troubles.insert(port.to_string()) => {
                    registry.attendant.hear(&ServerEvent::PortClosed { port: *port, why });
                }
                Err(_) => {}
            }
        }
        before != self.listeners.len()
    }

    fn start_consoles(&mut self, registry: &Registry) {
        for console in self.table.consoles() {
            let key = (console.id, console.domain.clone());
            if let Some(hub) = self.hubs.get(&key) {
                hub.change(console);
                continue;
            }
            match start_console(console, registry) {
                Ok(hub) => {
                    self.troubles.remove(console.domain.as_str());
                    self.hubs.insert(key, hub);
                }
                Err(why) if self.troubles.insert(console.domain.to_string()) => {
                    registry.attendant.hear(&ServerEvent::NoThread { domain: console.domain.clone(), why });
                }
                Err(_) => {}
            }
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn start_console(console: &Console, registry: &Registry) -> io::Result<Arc<Hub>> {
    let hub = Arc::new(Hub::new(console.clone(), &registry.bounds)?);
    let (held, bounds, attendant) = (Arc::clone(&hub), registry.bounds.clone(), Arc::clone(&registry.attendant));
    start("console", move || held.run(&bounds, &*attendant))?;
    Ok(hub)
}

impl Sessions {
    /// Returns `true` if the user may have another session. Sessions of root don't use up the slots of others, nor vice
    /// versa.
    fn have_room_for(&self, user: Option<UserId>, bounds: &Bounds) -> bool {
        let count =
            |counts: &dyn Fn(Option<UserId>) -> bool| self.places.values().filter(|place| counts(place.user)).count();
        count(&|other| other == user) < bounds.sessions_of_user
            && (user == Some(ROOT) || count(&|other| other != Some(ROOT)) < bounds.sessions)
    }

    /// Closes the longest-waiting sessions without a console if there are more than the maximum, beginning with the
    /// users who have the most of them.
    fn end_the_oldest(&self, most: usize) {
        let is_choosing = |place: &&Place| place.choosing_since.is_some() && !place.ended.load(Ordering::SeqCst);
        let mut of_users: BTreeMap<Option<UserId>, Vec<&Place>> = BTreeMap::new();
        for place in self.places.values().filter(is_choosing) {
            of_users.entry(place.user).or_default().push(place);
        }
        let too_many = of_users.values().map(Vec::len).sum::<usize>().saturating_sub(most);
        for _ in 0..too_many {
            let Some(choosing) = of_users.values_mut().max_by_key(|choosing| choosing.len()) else { return };
            choosing.sort_by_key(|place| std::cmp::Reverse(place.choosing_since));
            let Some(place) = choosing.pop() else { return };
            place.ended.store(true, Ordering::SeqCst);
            place.outbox.waker().wake();
        }
    }
}

/// Slot of one session. It is released on drop.
pub(crate) struct Ticket {
    pub(crate) registry: Arc<Registry>,
    pub(crate) id: SeatId,
    pub(crate) outbox: Arc<Outbox>,
    ended: Arc<AtomicBool>,
}

impl Ticket {
    /// Sets the time since which the session has no console; `None` if it has one.
    pub(crate) fn set_choosing(&self, since: Option<Instant>) {
        let mut sessions = locked(&self.registry.sessions);
        if let Some(place) = sessions.places.get_mut(&self.id) {
            place.choosing_since = since;
            // It may have selected one before it noticed that it had to end.
            place.ended.store(false, Ordering::SeqCst);
        }
    }

    /// Returns `true` if this session must end to make room for others.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        locked(&self.registry.sessions).places.remove(&self.id);
        self.registry.session_gone.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::foreign::ForeignText;

    use super::*;

    struct Silent;

    impl Attendant for Silent {
        fn send_break(&self, _: &Name) -> Result<(), ForeignText> {
            Ok(())
        }

        fn hear(&self, _: &ServerEvent) {}
    }

    fn registry() -> Arc<Registry> {
        Arc::new(Registry::new("sun".to_owned(), Bounds::default(), Arc::new(Silent)).expect("an eventfd"))
    }

    fn admit(registry: &Arc<Registry>, user: u32) -> Option<Ticket> {
        registry.admit((Ipv4Addr::LOCALHOST, 1).into(), Some(UserId(user))).expect("an eventfd")
    }

    #[test]
    fn no_user_takes_the_places_of_another_and_none_takes_those_of_root() {
        let registry = registry();
        let most = registry.bounds.sessions_of_user;
        let mut held: Vec<Ticket> = (0..most).map(|_| admit(&registry, 1001).expect("a place")).collect();
        assert!(admit(&registry, 1001).is_none());
        for user in 1002.. {
            let tickets: Vec<Ticket> = std::iter::from_fn(|| admit(&registry, user)).collect();
            if tickets.is_empty() {
                break;
            }
            held.extend(tickets);
        }
        assert_eq!(held.len(), registry.bounds.sessions);
        let of_root: Vec<Ticket> = std::iter::from_fn(|| admit(&registry, 0)).collect();
        assert_eq!(of_root.len(), most);
    }

    #[test]
    fn a_user_in_the_menu_is_not_evicted_for_another_users_crowd() {
        let registry = registry();
        let own = admit(&registry, 1000).expect("a place");
        let crowd: Vec<Ticket> = (0..2 * registry.bounds.choosing).filter_map(|_| admit(&registry, 1001)).collect();
        assert!(!own.is_ended());
        assert_eq!(crowd.iter().filter(|ticket| !ticket.is_ended()).count(), registry.bounds.choosing - 1);
        assert!(crowd[0].is_ended(), "the one that waited longest");
    }
}
