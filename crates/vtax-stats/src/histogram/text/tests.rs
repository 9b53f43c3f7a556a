use super::super::tests::{any_time, of};
use super::super::{MAX_COUNT, value_at};
use super::*;
use hdrhistogram::serialization::{Deserializer as TheirDeserializer, V2DeflateSerializer};
use proptest::prelude::*;

/// Returns the bytes of a histogram with the counters `words`, and with correct lengths and checksums.
fn with_words(words: &[u8]) -> String {
    let mut encoded = Vec::new();
    V2Serializer::new().serialize(&Histogram::new().0, &mut encoded).unwrap();
    encoded.truncate(HEADER);
    encoded[4..8].copy_from_slice(&(words.len() as u32).to_be_bytes());
    encoded.extend(words);
    STANDARD.encode(envelope(&stored_zlib(&encoded)))
}

/// Written by this module and parsed by PyPI's `hdrhistogram` 0.10.8: `HdrHistogram.decode(text)` has a total of 5, a
/// minimum of 1000 and `get_value_at_percentile(50)` of 25007.
#[test]
fn the_text_form_is_the_one_that_others_read() {
    let text = of(&[1000, 25_000, 25_001, 1_000_000, HIGHEST_NS]).to_base64();
    assert_eq!(text, OTHERS_READ);
}

const OTHERS_READ: &str =
    "HISTFAAAAEB4AQE1AMr/HISTEwAAAA0AAAAAAAAAAwAAAAAAAAABAAAADfhHWAA/8AAAAAAAAM8PAuFIBItWArP9AQKnHAjO";

/// The same histogram, written by PyPI's `hdrhistogram` 0.10.8: `HdrHistogram.decode(OTHERS_READ).encode()`.
#[test]
fn text_deflated_by_other_programs_is_read() {
    let theirs = "HISTFAAAAC14nJNpmSzMwMDAywABzFCaEST2wz2Cwf4DROA8P9NDD5buMKbNfxmZAKccCM4=";
    assert_eq!(Histogram::from_base64(theirs), Histogram::from_base64(OTHERS_READ));
}

fn deflated(histogram: &hdrhistogram::Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_small_text_that_unpacks_into_a_large_one_is_refused() {
    let mut wide = hdrhistogram::Histogram::<u64>::new_with_bounds(1, u64::MAX, 5).unwrap();
    (0..MAX_ENCODED as u64).for_each(|value| wide.record(value).unwrap());
    let text = STANDARD.encode(deflated(&wide));
    assert!(text.len() < MAX_ENCODED / 100, "{} characters", text.len());
    assert_eq!(Histogram::from_base64(&text), Err(HistogramError::Inflated));
}

#[test]
fn hostile_texts_are_refused_with_the_part_that_is_wrong() {
    let damaged = |part| Err(HistogramError::Damaged { part });
    let read = Histogram::from_base64;
    assert_eq!(read(""), damaged("container's cookie"));
    assert!(matches!(read("§"), Err(HistogramError::NotBase64 { .. })));
    let long = "A".repeat(MAX_BASE64 + 4);
    assert_eq!(read(&long), Err(HistogramError::TooLong { length: long.len() }));
    // Skips i64::MIN counters, whose negation overflows.
    assert_eq!(read(&with_words(&[0xff; 9])), damaged("list of counters"));
    // Counts i64::MAX.
    let most = [&[0xfe][..], &[0xff; 8]].concat();
    assert_eq!(read(&with_words(&most)), Err(HistogramError::TooManyCounts));
    // One counter more than exist.
    let full = vec![2u8; COUNTERS];
    assert_eq!(read(&with_words(&full)).unwrap().count(), COUNTERS as u64);
    assert_eq!(read(&with_words(&vec![2u8; COUNTERS + 1])), damaged("list of counters"));
    // Cut inside a word.
    assert_eq!(read(&with_words(&[0x80])), damaged("list of counters"));
}

#[test]
fn a_histogram_of_another_range_is_named() {
    let mut encoded = Vec::new();
    let other = hdrhistogram::Histogram::<u64>::new_with_bounds(1, u64::MAX, 5).unwrap();
    V2Serializer::new().serialize(&other, &mut encoded).unwrap();
    let text = STANDARD.encode(envelope(&stored_zlib(&encoded)));
    assert_eq!(Histogram::from_base64(&text), Err(HistogramError::OtherRange { low: 1, high: u64::MAX, digits: 5 }));
}

#[test]
fn the_fullest_histogram_fits_the_limit() {
    let mut full = Histogram::new();
    for index in 0..COUNTERS {
        full.0.saturating_record_n(value_at(index), i64::MAX as u64 >> 20);
    }
    assert!(full.to_base64().len() <= MAX_BASE64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn text_and_back_is_the_same(values in prop::collection::vec(any_time(), 0..200)) {
        let histogram = of(&values);
        let text = histogram.to_base64();
        prop_assert_eq!(&Histogram::from_base64(&text).unwrap(), &histogram);
        let json = serde_json::to_string(&histogram).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Histogram>(&json).unwrap(), &histogram);
        let bytes = STANDARD.decode(&text).unwrap();
        let theirs = TheirDeserializer::new().deserialize::<u64, _>(&mut &bytes[..]).unwrap();
        prop_assert_eq!(&theirs, &histogram.0);
    }

    #[test]
    fn hostile_text_never_panics(text in ".{0,200}") {
        let _ = Histogram::from_base64(&text);
    }

    #[test]
    fn hostile_words_never_panic(words in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(histogram) = Histogram::from_base64(&with_words(&words)) {
            prop_assert!(histogram.percentile(99.0) <= histogram.max());
            prop_assert!(histogram.count() <= MAX_COUNT);
        }
    }

    #[test]
    fn a_damaged_byte_is_noticed(
        values in prop::collection::vec(any_time(), 1..50),
        place in any::<prop::sample::Index>(),
        change in 1u8..,
    ) {
        let mut bytes = STANDARD.decode(of(&values).to_base64()).unwrap();
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        // Some bits of a zlib stream don't affect a reader: the level, the padding.
        if let Ok(histogram) = Histogram::from_base64(&STANDARD.encode(&bytes)) {
            prop_assert_eq!(histogram, of(&values));
        }
    }

    #[test]
    fn deflated_and_back_is_the_same(values in prop::collection::vec(any_time(), 0..200)) {
        let histogram = of(&values);
        let text = STANDARD.encode(deflated(&histogram.0));
        prop_assert_eq!(Histogram::from_base64(&text).unwrap(), histogram);
    }

    #[test]
    fn a_damaged_byte_of_a_deflated_stream_is_noticed(
        values in prop::collection::vec(any_time(), 1..50),
        place in any::<prop::sample::Index>(),
        change in 1u8..,
    ) {
        let mut bytes = deflated(&of(&values).0);
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        if let Ok(histogram) = Histogram::from_base64(&STANDARD.encode(&bytes)) {
            prop_assert_eq!(histogram, of(&values));
        }
    }

    #[test]
    fn hostile_streams_never_panic(zlib in prop::collection::vec(any::<u8>(), 0..300), header in any::<bool>()) {
        let zlib = if header { [&ZLIB_HEADER[..], &zlib].concat() } else { zlib };
        prop_assert!(Histogram::from_base64(&STANDARD.encode(envelope(&zlib))).is_err());
    }
}

/// The first byte selects the meaning of the others: the text itself, the zlib stream in it, or the counters in that.
#[test]
fn fuzz_histograms() {
    let inner = STANDARD.decode(OTHERS_READ).unwrap()[ENVELOPE..].to_vec();
    let seeds = [[&[0], OTHERS_READ.as_bytes()].concat(), [&[1], &inner[..]].concat(), vec![2, 2, 4, 9, 6, 0x80, 1]];
    vtax_fuzz::fuzz("histograms", &seeds, |input| {
        let (kind, rest) = input.split_first()?;
        let text = match kind % 3 {
            0 => String::from_utf8(rest.to_vec()).ok()?,
            1 => STANDARD.encode(envelope(rest)),
            _ => with_words(rest),
        };
        let histogram = Histogram::from_base64(&text).ok()?;
        assert!(histogram.count() <= MAX_COUNT && histogram.percentile(99.0) <= histogram.max());
        assert_eq!(Histogram::from_base64(&histogram.to_base64()).as_ref(), Ok(&histogram));
        Some(())
    });
}
