//! Access key of a `vtax ui`, without which no page is shown.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};

/// 128 random bits, as text.
#[derive(Debug, Clone)]
pub(crate) struct AccessKey(String);

impl AccessKey {
    pub(crate) fn random() -> io::Result<AccessKey> {
        let mut bits = [0; 16];
        // So few random bytes are read completely or not at all.
        getrandom(&mut bits, GetRandomFlags::empty())?;
        Ok(AccessKey(bits.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the digits.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Returns the prefix of every path.
    pub(crate) fn base(&self) -> String {
        format!("/{}", self.0)
    }

    /// Returns `true` if the path begins with the key. The comparison takes constant time.
    pub(crate) fn opens(&self, path: &str) -> bool {
        let shown = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        Sha256::digest(shown) == Sha256::digest(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_key_opens() {
        let key = AccessKey::random().expect("a key");
        let AccessKey(text) = &key;
        assert_eq!(text.len(), 32);
        assert!(key.opens(&format!("/{text}/run/demo-1")) && key.opens(&format!("/{text}")));
        for wrong in ["", "/", "/run/demo-1", &format!("/{}", &text[1..]), &format!("/{text}0/")] {
            assert!(!key.opens(wrong), "{wrong}");
        }
        assert!(!AccessKey::random().expect("another key").opens(&key.base()));
    }
}
