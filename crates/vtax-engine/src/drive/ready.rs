//! Many flows on a thread: a flow that can't continue yields to another.
//!
//! *epoll*: the thread sleeps until a socket is ready, a time is reached or a tick is over. The events are
//! level-triggered. So a socket with unread data is reported again, and a flow need not receive until `EAGAIN`. A
//! transaction costs one send call, one receive call and a share of an epoll_wait(2).
//!
//! *busy-poll*: the same, but the thread never sleeps. It repeatedly tries the sockets of a few flows directly. With
//! more than [`SWEEP_MOST`] flows it spins on epoll_wait(2), which finds the ready ones sooner.

mod io;

use std::{
    cell::{Cell, RefCell},
    mem,
    os::fd::OwnedFd,
};

use rustix::{
    buffer::spare_capacity,
    event::{
        PollFd, PollFlags, Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
        poll,
    },
    io::Errno,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};
use socket2::Socket;
use vtax_model::station::Target;
use vtax_sys::clock::now_ns;

pub(crate) use io::ReadyIo;

use crate::{
    drive::{
        Buffers,
        exact::{self, SPIN, TimedSleep},
        flows::{FlowTask, Flows},
        waits::{TICK, Waits},
    },
    error::{EngineError, Result},
    flow::Session,
};

/// Consecutive calls of a flow while others wait.
const FUEL: u32 = 32;

/// Events taken by one epoll_wait(2).
const EVENTS: usize = 256;

/// The most flows that a busy-polling thread tries one by one.
const SWEEP_MOST: usize = 8;

/// The event data of the listener; a flow's event data is its slot.
const LISTENER: u64 = u64::MAX;

/// The event data of the ticker.
const TICKER: u64 = u64::MAX - 1;

/// The engine of one thread.
pub(crate) struct EpollPoller<'a> {
    session: &'a Session,
    buffers: Buffers,
    epoll: OwnedFd,
    /// True if the thread never sleeps.
    spins: bool,
    /// True if the thread tries the sockets themselves, without epoll.
    sweeps: bool,
    slots: Vec<Slot>,
    /// Flows that yielded although they could continue.
    again: RefCell<Vec<usize>>,
    waits: Waits,
    /// The socket that accepts connections, if the flows of this test accept any. `acceptors` are the flows that wait
    /// for a connection. The flow that waited last gets the next one: its data is still in the CPU's cache. `listening`
    /// says whether epoll watches the listener.
    listener: Option<&'a Socket>,
    acceptors: RefCell<Vec<usize>>,
    listening: Cell<bool>,
    /// Wakes the thread at each tick, if it accepts connections.
    ticker: Option<OwnedFd>,
    ticked: Cell<bool>,
}

/// A flow's place on the thread.
#[derive(Default)]
struct Slot {
    /// The events for which the current socket is watched; none if it isn't watched.
    watched: Cell<Option<EventFlags>>,
    fuel: Cell<u32>,
    queued: Cell<bool>,
}

impl<'a> EpollPoller<'a> {
    pub(crate) fn new(
        session: &'a Session,
        flows: usize,
        spins: bool,
        listener: Option<&'a Socket>,
    ) -> Result<EpollPoller<'a>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed_to_wait)?;
        let ticks = listener.is_some() && !spins;
        Ok(EpollPoller {
            session,
            buffers: Buffers::new(&session.spec),
            ticker: ticks.then(|| ticker(&epoll)).transpose().map_err(failed_to_wait)?,
            ticked: Cell::new(false),
            epoll,
            spins,
            sweeps: spins && flows <= SWEEP_MOST,
            slots: (0..flows).map(|_| Slot::default()).collect(),
            again: RefCell::default(),
            waits: Waits::new(flows, session.patience.silence),
            listener,
            acceptors: RefCell::default(),
            listening: Cell::new(false),
        })
    }

    /// Runs the flows, the n-th in slot n, until all are done or one has failed. Flows that accept
    /// connections run until the first one is done.
    pub(crate) fn run(&self, flows: impl Iterator<Item = impl FlowTask>) -> Result<()> {
        let mut flows = if self.listener.is_some() { Flows::led(flows) } else { Flows::new(flows) };
        let mut events = Vec::with_capacity(EVENTS);
        let mut turn: Vec<usize> = (0..self.slots.len()).collect();
        let mut next_tick = now_ns() + TICK;
        loop {
            for slot in turn.drain(..) {
                self.poll(&mut flows, slot)?;
            }
            mem::swap(&mut turn, &mut self.again.borrow_mut());
            if flows.are_over() {
                return Ok(());
            }
            let now = if self.sweeps {
                (0..self.slots.len()).try_for_each(|slot| self.poll(&mut flows, slot))?;
                now_ns()
            } else {
                self.await_events(&mut events, turn.is_empty(), next_tick)?;
                for event in events.drain(..) {
                    self.take(&mut flows, event)?;
                }
                let now = now_ns();
                while let Some(slot) = self.waits.take_due(now) {
                    self.poll(&mut flows, slot)?;
                }
                now
            };
            if now >= next_tick || self.ticked.take() {
                next_tick = now + TICK;
                self.tick(&mut flows)?;
            }
        }
    }

    #[inline]
    fn poll(&self, flows: &mut Flows<impl FlowTask>, slot: usize) -> Result<()> {
        self.slots[slot].fuel.set(FUEL);
        flows.poll(slot)
    }

    fn take(&self, flows: &mut Flows<impl FlowTask>, event: Event) -> Result<()> {
        match event.data.u64() {
            LISTENER => self.hand_out_connection(flows),
            TICKER => {
                self.ticked.set(true);
                self.ticker.as_ref().map_or(Ok(()), heed).map_err(failed_to_wait)
            }
            slot => self.poll(flows, slot as usize),
        }
    }

    /// Lets one of the waiting flows accept. If there are more connections, epoll reports them again. If no flow waits,
    /// connections must wait, and epoll must not keep reporting them.
    fn hand_out_connection(&self, flows: &mut Flows<impl FlowTask>) -> Result<()> {
        let Some(slot) = self.acceptors.borrow_mut().pop() else {
            self.listening.set(false);
            let deleted = self.listener.map_or(Ok(()), |listener| epoll::delete(&self.epoll, listener));
            return deleted.map_err(failed_to_wait);
        };
        self.slots[slot].queued.set(false);
        self.poll(flows, slot)
    }

    /// Sleeps, if permitted, until there are events, a deadline is near or the tick is over.
    fn await_events(&self, events: &mut Vec<Event>, idle: bool, next_tick: u64) -> Result<()> {
        let timer = self.waits.next_moment();
        let may_sleep = idle && !self.spins;
        // Since when the thread has only been waiting for an imminent deadline.
        let mut awaited = None;
        if let (true, Some(moment)) = (may_sleep, timer) {
            // epoll_wait(2) has a resolution of milliseconds. epoll_pwait2(2) is finer, but newer than the kernels of
            // many guests.
            let now = now_ns();
            let left = moment.min(next_tick).saturating_sub(now).saturating_sub(SPIN);
            awaited = (left == 0).then_some(now);
            let timeout = Timespec { tv_sec: 0, tv_nsec: left as i64 };
            let sleep = (left > 0).then(TimedSleep::begin);
            let ready = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout));
            let ready = ready.or_else(interrupted).map_err(failed_to_wait)?;
            sleep.filter(|_| ready == 0).into_iter().for_each(TimedSleep::ended_in_time);
        }
        let timeout = match may_sleep && timer.is_none() {
            true if self.ticker.is_some() => None,
            true => Some(Timespec { tv_sec: 0, tv_nsec: TICK as i64 }),
            false => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
        };
        let taken = epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref());
        taken.or_else(interrupted).map_err(failed_to_wait)?;
        awaited.filter(|_| events.is_empty()).into_iter().for_each(exact::has_waited_since);
        Ok(())
    }

    /// Wakes the flows whose patience is over.
    fn tick(&self, flows: &mut Flows<impl FlowTask>) -> Result<()> {
        self.session.check_stopped()?;
        let mut expired = vec![];
        self.waits.tick(|slot| expired.push(slot));
        expired.into_iter().try_for_each(|slot| self.poll(flows, slot))
    }
}

/// A timer that fires at each tick. A timeout for each wait would instead set the CPU's timer in each transaction,
/// which costs VM exits on a virtual machine.
fn ticker(epoll: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let tick = rustix::time::Timespec { tv_sec: 0, tv_nsec: TICK as i64 };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: tick, it_value: tick })?;
    epoll::add(epoll, &timer, EventData::new_u64(TICKER), EventFlags::IN)?;
    Ok(timer)
}

/// Reads the timer: an unread timer doesn't fire again, timerfd_create(2).
fn heed(timer: &OwnedFd) -> Result<(), Errno> {
    match rustix::io::read(timer, &mut [0; 8]) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn interrupted<T: Default>(errno: Errno) -> Result<T, Errno> {
    if errno == Errno::INTR { Ok(T::default()) } else { Err(errno) }
}

fn failed_to_wait(errno: Errno) -> EngineError {
    EngineError::socket("epoll_wait", &Target::NOWHERE, errno.into())
}
