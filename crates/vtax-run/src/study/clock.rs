//! Wall-clock time, for records only: measuring uses the monotonic clock.

use jiff::{Timestamp, tz::TimeZone};

/// RFC 3339, UTC, to the millisecond.
pub(crate) fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// Returns the seconds of a timestamp; none if it isn't a time.
pub(crate) fn seconds(rfc3339: &str) -> Option<f64> {
    rfc3339.parse::<Timestamp>().ok().map(|time| time.as_millisecond() as f64 / 1e3)
}

/// Date and time in a form that sorts and is valid in a file name: `20261121-121500`, UTC.
pub(crate) fn compact() -> String {
    Timestamp::now().to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S").to_string()
}
