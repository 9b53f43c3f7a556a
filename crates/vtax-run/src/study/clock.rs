//! Wall-clock time, for records only: measuring uses the monotonic clock.

use std::time::Duration;

use jiff::{Timestamp, tz::TimeZone};

/// `9 s`, `1 min 05 s`, `1 h 02 min`.
pub fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes if minutes < 60 => format!("{minutes} min {:02} s", seconds % 60),
        minutes => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

/// RFC 3339, UTC, to the millisecond.
pub(crate) fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// The seconds of a timestamp; none if it is not a time.
pub(crate) fn seconds(rfc3339: &str) -> Option<f64> {
    rfc3339.parse::<Timestamp>().ok().map(|time| time.as_millisecond() as f64 / 1e3)
}

/// Date and time in a form that sorts and fits a file name: `20261121-121500`, UTC.
pub(crate) fn compact() -> String {
    Timestamp::now().to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_reported_in_the_unit_that_fits() {
        let told = |seconds| minutes(Duration::from_secs(seconds));
        assert_eq!(told(9), "9 s");
        assert_eq!(told(65), "1 min 05 s");
        assert_eq!(told(3720), "1 h 02 min");
    }
}
