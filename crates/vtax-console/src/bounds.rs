//! What sessions, guests and strangers may take.

use std::time::Duration;

/// The bounds of a console server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Sessions of all users but root. More are refused.
    pub sessions: usize,
    /// Sessions of one user, also of root. More are refused.
    pub sessions_of_user: usize,
    /// Sessions at one console. More are refused.
    pub sessions_of_console: usize,
    /// Sessions that haven't chosen a console. If one more comes, one of the user is ended who has most of them: the one that
    /// waits longest.
    pub choosing: usize,
    /// How long a session may be without a console.
    pub choosing_time: Duration,
    /// How long a session may be without a key. None: for ever.
    pub idle: Option<Duration>,
    /// Bytes that wait for one session. If it doesn't read, what the guest says after that is lost for it.
    pub output: usize,
    /// Keys that wait for a guest.
    pub input: usize,
    /// How long a guest may have to wait for sessions that read slowly, for each time that it fills [`Bounds::output`].
    pub patience: Duration,
    /// How long keys wait for a guest that doesn't read them, before they are lost.
    pub input_patience: Duration,
    /// Size of a console's log. Then it becomes the older one, of which there is one.
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
