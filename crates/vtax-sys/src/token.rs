//! The secret by which a responder distinguishes the test's own flows from unauthenticated peers.

use std::{fmt, str::FromStr};

use rustix::rand::{GetRandomFlags, getrandom};

/// Length of a token in bytes, at the start of a flow.
pub const TOKEN_LEN: usize = 16;

/// 128 random bits shared by both endpoints of a test.
///
/// It travels only on the control stream and at the start of each flow. `Debug` doesn't print it, so it cannot get into
/// a log by accident.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; TOKEN_LEN]);

impl Token {
    /// Returns a new token from the kernel's random number generator.
    pub fn random() -> Token {
        let mut bytes = [0; TOKEN_LEN];
        getrandom(&mut bytes, GetRandomFlags::empty())
            .expect("getrandom of 16 bytes neither fails nor falls short once it is seeded (getrandom(2))");
        Token(bytes)
    }

    /// Returns the bytes, for the start of a flow.
    pub fn bytes(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }

    /// Returns a seed for random numbers that differ from test to test. Holders of the token may know them.
    pub fn seed(&self) -> u64 {
        let (first, _) = self.0.split_first_chunk().expect("16 > 8");
        u64::from_le_bytes(*first)
    }

    /// Returns whether `shown`, bytes received from the network, is this token.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0 == *shown
    }
}

/// Prints the secret itself as 32 hexadecimal digits: for the control stream, not for messages.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// A text that is not a token. The error doesn't repeat the text, which may be a mistyped token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
#[error("invalid token: 32 hexadecimal digits required")]
#[diagnostic(code("bad-token"))]
pub struct TokenError;

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        if text.len() != 2 * TOKEN_LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(TokenError);
        }
        let value = u128::from_str_radix(text, 16).map_err(|_| TokenError)?;
        Ok(Token(value.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_survives_the_control_stream() {
        let token = Token::random();
        assert_eq!(token.to_string().parse(), Ok(token));
        assert_ne!(token, Token::random());
    }

    #[test]
    fn a_token_is_not_printed() {
        let token = Token::random();
        assert_eq!(format!("{token:?}"), "Token(secret)");
    }

    proptest! {
        #[test]
        fn only_hexadecimal_text_of_the_right_length_is_a_token(text in "[0-9a-fA-F+ ]{30,34}|.*") {
            let right = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            prop_assert_eq!(text.parse::<Token>().is_ok(), right);
        }
    }
}
