//! Identity of one attempt to migrate a domain.

use std::fmt;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use vtax_sys::token::Token;

/// Identity of one attempt to migrate a domain: 128 random bits as 32 hexadecimal digits. It is the name of a record at
/// the target, so anything else is refused.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct MigrationId(String);

impl MigrationId {
    pub(crate) fn random() -> MigrationId {
        MigrationId(Token::random().to_string())
    }
}

impl fmt::Display for MigrationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for MigrationId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<MigrationId, &'static str> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match text.len() == 32 && text.as_bytes().iter().all(is_digit) {
            true => Ok(MigrationId(text.to_owned())),
            false => Err("use 32 hexadecimal digits in lower case"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_name_a_record() {
        let id = MigrationId::random();
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        assert_ne!(MigrationId::random(), id);
        let path = format!("../{}", &id.to_string()[3..]);
        for wrong in ["", "../../state", &path, &id.to_string()[1..], &id.to_string().replace(char::is_numeric, "F")] {
            assert!(wrong.parse::<MigrationId>().is_err(), "{wrong}");
        }
    }
}
