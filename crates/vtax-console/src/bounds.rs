//! Limits of sessions, guests and unauthenticated peers.

use std::time::Duration;

/// Limits of a console server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of sessions of all users except root. Further ones are refused.
    pub sessions: usize,
    /// Maximum number of sessions per user, including root. Further ones are refused.
    pub sessions_of_user: usize,
    /// Maximum number of sessions on one console. Further ones are refused.
    pub sessions_of_console: usize,
    /// Maximum number of sessions that haven't selected a console. If one more connects, the longest-waiting session of
    /// the user who has most of them is closed.
    pub choosing: usize,
    /// Maximum time that a session may be without a console.
    pub choosing_time: Duration,
    /// Maximum time that a session may be without a keystroke. `None`: unlimited.
    pub idle: Option<Duration>,
    /// Maximum number of bytes buffered for one session. If it doesn't read, further output of the guest is lost for
    /// it.
    pub output: usize,
    /// Maximum number of keystrokes buffered for a guest.
    pub input: usize,
    /// Maximum time that a guest waits for slow sessions, each time that it fills [`Bounds::output`].
    pub patience: Duration,
    /// Time for which keystrokes wait for a guest that doesn't read them, before they are lost.
    pub input_patience: Duration,
    /// Maximum size of a console's log. A full log is kept as the older log, of which there is only one.
    pub log: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            sessions: 128,
            sessions_of_user: 32,
            sessions_of_console: 32,
            choosing: 16,
            choosing_time: Duration::from_secs(300),
            idle: None,
            output: 64 << 10,
            input: 64 << 10,
            patience: Duration::from_millis(200),
            input_patience: Duration::from_secs(5),
            log: 1 << 20,
        }
    }
}
