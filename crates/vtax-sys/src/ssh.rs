//! Session information that sshd gives to programs.

use std::net::IpAddr;

/// Environment variable with the two ends of the session, ssh(1).
pub const CONNECTION: &str = "SSH_CONNECTION";

/// Returns the server's address, which is the third word. The others are the client's address, its port and the
/// server's port. A link-local address has its interface after a `%`.
pub fn server(connection: &str) -> Option<IpAddr> {
    let server = connection.split_whitespace().nth(2)?;
    server.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_servers_address_is_the_third_word() {
        assert_eq!(server("192.0.2.1 51234 192.0.2.9 22"), Some(IpAddr::from([192, 0, 2, 9])));
        let local = server("fe80::1%eth0 51234 fe80::2%eth0 22");
        assert_eq!(local.map(|address| address.to_string()), Some("fe80::2".to_owned()));
        for nonsense in ["", "a b", "a b c d", "192.0.2.1 51234"] {
            assert_eq!(server(nonsense), None, "{nonsense}");
        }
    }

    proptest! {
        #[test]
        fn hostile_words_never_panic(text in "\\PC{0,80}") {
            let _ = server(&text);
        }
    }
}
