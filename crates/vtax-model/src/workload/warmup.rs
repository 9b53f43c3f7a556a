//! Traffic before the measured time.

use std::fmt;

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::units::{Span, UnitError};

/// Traffic before the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub enum Warmup {
    /// For this long, regardless of the figures.
    For(Span),
    /// Until the figures are steady ([`vtax_stats::steady`]), at most for `most`; the report shows which.
    UntilSteady {
        /// Written `steady:2s`; `steady` alone is [`Warmup::MOST`].
        most: Span,
    },
}

impl Warmup {
    /// Default timeout for reaching a steady state.
    pub const MOST: Span = Span::from_millis(3_000);
    /// No warm-up.
    pub const NONE: Warmup = Warmup::For(Span::from_millis(0));

    /// Returns its maximum duration.
    pub fn most(self) -> Span {
        match self {
            Warmup::For(span) | Warmup::UntilSteady { most: span } => span,
        }
    }
}

impl From<Span> for Warmup {
    fn from(span: Span) -> Warmup {
        Warmup::For(span)
    }
}

impl std::str::FromStr for Warmup {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.strip_prefix("steady") {
            Some("") => Ok(Warmup::UntilSteady { most: Warmup::MOST }),
            Some(most) => {
                let most = most.strip_prefix(':').ok_or_else(|| UnitError::Span(text.to_owned()))?;
                Ok(Warmup::UntilSteady { most: most.parse()? })
            }
            None => Ok(Warmup::For(text.parse()?)),
        }
    }
}

impl fmt::Display for Warmup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warmup::For(span) => span.fmt(f),
            Warmup::UntilSteady { most } => write!(f, "steady:{}", most.to_string().replace(' ', "")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warmup_is_a_time_or_a_state() {
        let read = |text: &str| text.parse::<Warmup>();
        assert_eq!(read("10ms"), Ok(Warmup::For(Span::from_millis(10))));
        assert_eq!(read("steady"), Ok(Warmup::UntilSteady { most: Warmup::MOST }));
        assert_eq!(read("steady:500ms"), Ok(Warmup::UntilSteady { most: Span::from_millis(500) }));
        for text in ["", "steadily", "steady:", "10"] {
            assert!(read(text).is_err(), "{text}");
        }
        for text in ["10ms", "steady:2s 500ms"] {
            let warmup = text.replace(' ', "").parse::<Warmup>().expect("good");
            assert_eq!(warmup.to_string().replace(' ', "").parse(), Ok(warmup));
        }
    }
}
