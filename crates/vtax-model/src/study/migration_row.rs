//! Rows of a study of live migration.

use std::{fmt, num::NonZeroU8, str::FromStr};

/// Way to migrate a guest, written `migrate:tls,multifd=4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MigrationWay {
    /// True if everything is encrypted, the default of `vtax ldm migrate-domain`.
    pub tls: bool,
    /// Number of connections for the memory; a single one for everything if absent.
    pub channels: Option<NonZeroU8>,
    /// True if the guest continues at the target before all of its memory is there.
    pub post_copy: bool,
    /// Number of CPUs on each side for QEMU's threads, except those that run the guest; all if absent.
    pub cores: Option<NonZeroU8>,
}

/// Invalid way to migrate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum MigrationWayError {
    #[error(
        "invalid migration `{0}`: use plain or tls, then multifd=CHANNELS, post-copy or cores=N, e.g. migrate:tls,cores=2"
    )]
    #[diagnostic(code("unknown-name"))]
    Word(String),
    #[error("QEMU cannot combine multifd with post-copy; use two rows")]
    #[diagnostic(code("options-clash"))]
    MultifdPostCopy,
}

pub(super) const MIGRATE: &str = "migrate:";

impl FromStr for MigrationWay {
    type Err = MigrationWayError;

    /// Without `migrate:`.
    fn from_str(text: &str) -> Result<MigrationWay, MigrationWayError> {
        let refused = || MigrationWayError::Word(text.to_owned());
        let mut words = text.split(',');
        let tls = match words.next() {
            Some("plain") => false,
            Some("tls") => true,
            _ => return Err(refused()),
        };
        let mut way = MigrationWay { tls, channels: None, post_copy: false, cores: None };
        for word in words {
            let number = |text: &str| text.parse().map_err(|_| refused());
            match word.split_once('=') {
                Some(("multifd", channels)) if way.channels.is_none() => way.channels = Some(number(channels)?),
                Some(("cores", cores)) if way.cores.is_none() => way.cores = Some(number(cores)?),
                None if word == "post-copy" && !way.post_copy => way.post_copy = true,
                _ => return Err(refused()),
            }
        }
        match way.channels.is_some() && way.post_copy {
            true => Err(MigrationWayError::MultifdPostCopy),
            false => Ok(way),
        }
    }
}

impl fmt::Display for MigrationWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            Some(if self.tls { "tls" } else { "plain" }.to_owned()),
            self.channels.map(|channels| format!("multifd={channels}")),
            self.post_copy.then(|| "post-copy".to_owned()),
            self.cores.map(|cores| format!("cores={cores}")),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        f.pad(&format!("{MIGRATE}{}", words.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_way_is_read_back_as_written(tls: bool, channels: Option<NonZeroU8>, post: bool, cores: Option<NonZeroU8>) {
            let way = MigrationWay { tls, channels, post_copy: post && channels.is_none(), cores };
            let text = way.to_string();
            prop_assert_eq!(text.strip_prefix(MIGRATE).expect("it begins so").parse(), Ok(way));
        }
    }

    #[test]
    fn an_invalid_way_is_refused() {
        for text in ["", "ssl", "tls,cores=0", "tls,cores", "plain,multifd=4,multifd=4", "tls,post-copy=1", "tls,"] {
            assert_eq!(text.parse::<MigrationWay>(), Err(MigrationWayError::Word(text.to_owned())), "{text}");
        }
        assert_eq!("tls,multifd=4,post-copy".parse::<MigrationWay>(), Err(MigrationWayError::MultifdPostCopy));
    }
}
