//! Input on data connections and in datagrams, from the peer or an unauthenticated peer.

use vtax_fuzz::{fuzz, fuzz_text};
use vtax_model::station::{Station, Target};
use vtax_sys::token::Token;

use crate::{
    sequence::{HORIZON, Sequence},
    wire::{FlowGreeting, GREETING_LEN, HELLO_LEN, Head, Mark, Stamp, hello, read_hello, shows_token},
};

const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";

#[test]
fn fuzz_datagrams() {
    let token: Token = TOKEN.parse().expect("a token");
    let mut request = Head::with_token(64, &token);
    request.stamp(Stamp::new(7, Mark::Open));
    let seeds = [FlowGreeting::Hello.write(&token, 3).to_vec(), hello(&token, 9).to_vec(), request.bytes().to_vec()];
    fuzz("datagrams", &seeds, move |bytes| {
        let greeting = FlowGreeting::read(bytes, &token);
        if let Some((index, greeting)) = greeting {
            assert_eq!(bytes, greeting.write(&token, index));
        }
        let hello_of = |bytes: &[u8]| read_hello(bytes.first_chunk::<HELLO_LEN>()?, &token);
        let index = hello_of(bytes);
        if let Some(index) = index {
            assert_eq!(bytes[..HELLO_LEN], hello(&token, index));
        }
        let (mark, number) = (Stamp::mark_of(bytes), Stamp::sequence_of(bytes));
        if let Some(mark) = mark {
            assert!(Stamp::new(number, mark).leads(bytes), "{mark:?} {number}");
            let mut answer = Head::plain(bytes.len());
            answer.echo(bytes);
            assert!(bytes.starts_with(answer.bytes()));
        }
        assert!(greeting.is_none() || bytes.len() == GREETING_LEN);
        assert!(index.is_none() || bytes.len() >= HELLO_LEN);
        let shown = shows_token(bytes, &token);
        index.map(|_| ()).or(mark.filter(|_| shown).map(|_| ()))
    });
}

/// Sequence numbers of a stream, eight bytes each; one that begins with 0xff opens the window.
#[test]
fn fuzz_sequences() {
    let seed: Vec<u8> = [0_u64, 1, 5, 3, 0xff, 4, HORIZON, 6, 2].into_iter().flat_map(u64::to_le_bytes).collect();
    fuzz("sequences", &[seed], |bytes| {
        let (mut sequence, mut arrived) = (Sequence::new(), 0);
        for number in bytes.as_chunks::<8>().0 {
            match number[0] {
                0xff => sequence.open(),
                _ => arrived += u64::from(sequence.arrived(u64::from_le_bytes(*number))),
            }
        }
        assert!(sequence.reordered() <= arrived);
        let _ = sequence.lost();
        Some(())
    });
}

/// Location of an end, and its secret: JSON in orders and answers.
#[test]
fn fuzz_places() {
    let seeds = [
        r#"[{"ip":"10.0.0.1"},{"ip":"10.0.0.1:4321"}]"#,
        r#"[{"unix":"/run"},{"unix":"/run/socket"}]"#,
        r#"[{"vsock":3},{"vsock":{"cid":3,"port":4321}}]"#,
    ];
    fuzz_text("places", &seeds, |text| {
        if let Ok(token) = text.parse::<Token>() {
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        let places: (Station, Target) = serde_json::from_slice(text.as_bytes()).ok()?;
        let again = serde_json::to_string(&places).expect("it can be written");
        assert_eq!(serde_json::from_str::<(Station, Target)>(&again).expect("it can be read"), places);
        // Names that are too long for the kernel are errors.
        let _ = (crate::socket::address(&places.1), places.1.to_string());
        Some(())
    });
}
