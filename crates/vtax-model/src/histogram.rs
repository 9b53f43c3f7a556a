//! The round-trip times of a sample, as a histogram that can be stored and merged.
//!
//! A sample holds millions of transactions, and a percentile of percentiles means nothing,
//! so the result keeps the whole distribution: 1 ns to 60 s in buckets of three significant
//! digits ([HdrHistogram](http://hdrhistogram.org)). The histograms of a cell's samples add up to
//! the cell's histogram exactly.
//!
//! **Text form.** [`Histogram::to_base64`] writes what the HdrHistogram libraries of Java, C and
//! Python read: base64 of the "V2 compressed" container, a zlib stream (RFC 1950) around the V2
//! encoding. The stream is made of *stored* blocks (RFC 1951, 3.2.4): the V2 encoding is compact
//! already (deflating a sample's 3 kB saves 6 %), and a reader of stored blocks only can't be made
//! to inflate a kilobyte into a gigabyte. [`Histogram::from_base64`] therefore reads what this module writes, and refuses
//! streams that are really deflated, another range, and every length that doesn't add up, before
//! it allocates anything that the text, and not its own length, asks for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Round-trip times in nanoseconds, 1 ns to 60 s, kept to three significant digits.
///
/// 27,648 counters: 216 KiB of memory, allocated once by [`Histogram::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

/// Why a text is not a histogram of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistogramError {
    /// Longer than the fullest histogram can be.
    #[error("the histogram's text has {length} characters, the fullest has {MAX_BASE64}: it was not written by vtax")]
    TooLong {
        /// Characters given.
        length: usize,
    },
    /// Not base64 with padding (RFC 4648, section 4).
    #[error("the histogram's text is not base64: {why}; export the result again")]
    NotBase64 {
        /// What the decoder found.
        why: String,
    },
    /// The bytes are damaged or were written by something else.
    #[error("the histogram's {part} is wrong: the text is damaged or was not written by vtax; export the result again")]
    Damaged {
        /// The part of the container that doesn't hold.
        part: &'static str,
    },
    /// A histogram, but one that ours can't be merged with.
    #[error(
        "the histogram covers {low} to {high} with {digits} significant digits; vtax reads {LOWEST_NS} to {HIGHEST_NS} with {DIGITS}"
    )]
    OtherRange {
        /// Lowest value that it tells from zero.
        low: u64,
        /// Highest value that it holds.
        high: u64,
        /// Significant decimal digits.
        digits: u32,
    },
    /// More recorded values than any sample can have.
    #[error("the histogram claims more than {MAX_COUNT} transactions: the text is damaged; export the result again")]
    TooManyCounts,
}

const LOWEST_NS: u64 = 1;
const HIGHEST_NS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// Counters per octave above the first: half of the 2048 sub-buckets that three digits need.
const HALF: usize = 1024;
/// Octaves that reach from 2048 to beyond 60 s, and the two halves of the first.
const COUNTERS: usize = 27 * HALF;

/// 2^40: a day of eight streams at a million transactions a second each, with room to spare, and
/// far from what the sums over a histogram could overflow at.
const MAX_COUNT: u64 = 1 << 40;

const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
const ENCODING_COOKIE: u32 = 0x1c84_9313;
const ENVELOPE: usize = 8;
const HEADER: usize = 40;
/// Bytes of the longest count (LEB128-64b9B).
const WORD: usize = 9;
const STORED_MAX: usize = 65_535;
const STORED_HEADER: usize = 5;

/// Characters of a histogram in which every counter takes a word of full length.
const MAX_BASE64: usize = {
    let inner = HEADER + COUNTERS * WORD;
    let blocks = inner.div_ceil(STORED_MAX);
    (ENVELOPE + 2 + blocks * STORED_HEADER + inner + 4).div_ceil(3) * 4
};

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        let empty = hdrhistogram::Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS);
        Self(empty.expect("1 <= low, 2 * low <= high and digits <= 5 hold for the constants"))
    }

    /// Adds one round trip. Never allocates or fails; what is longer than 60 s is kept as 60 s
    /// and counted by [`Histogram::saturated`].
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.min(HIGHEST_NS));
    }

    /// Adds all that `other` holds: the same as recording its values here.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all our histograms have one range");
    }

    /// Recorded values.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// No value was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Values in the last bucket, which starts within 0.1 % below 60 s: these may have been
    /// longer than the histogram can tell.
    pub fn saturated(&self) -> u64 {
        self.0.count_at(HIGHEST_NS)
    }

    /// Mean in nanoseconds, each value taken as the middle of its bucket (within 0.05 %); 0 if empty.
    pub fn mean_ns(&self) -> f64 {
        self.0.mean()
    }

    /// Lower edge of the first bucket used, in nanoseconds; 0 if empty.
    pub fn min(&self) -> u64 {
        self.0.min()
    }

    /// Upper edge of the last bucket used, in nanoseconds: within 0.1 % above the longest; 0 if
    /// empty.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// The value in nanoseconds that `percent` of the values don't exceed (the upper edge of its
    /// bucket). `percent` is taken into 0..=100, NaN asks for the shortest; 0 if empty.
    pub fn percentile(&self, percent: f64) -> u64 {
        let quantile = (percent / 100.0).clamp(0.0, 1.0);
        self.0.value_at_quantile(quantile)
    }

    /// Every value that was recorded (the upper edge of its bucket) and how often, in rising order.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value()))
    }

    /// The text form described at the module.
    pub fn to_base64(&self) -> String {
        let mut encoded = Vec::new();
        V2Serializer::new()
            .serialize(&self.0, &mut encoded)
            .expect("memory takes all bytes, and no counter reaches 2^63 by recording");
        STANDARD.encode(envelope(&stored_zlib(&encoded)))
    }

    /// Reads the text form. Safe on hostile text: bounded in memory by a multiple of the text's
    /// own length (plus the counters), and never panics.
    pub fn from_base64(text: &str) -> Result<Self, HistogramError> {
        if text.len() > MAX_BASE64 {
            return Err(HistogramError::TooLong { length: text.len() });
        }
        let bytes = STANDARD.decode(text).map_err(|error| HistogramError::NotBase64 { why: error.to_string() })?;
        let encoded = read_stored_zlib(open_envelope(&bytes)?)?;
        read_counts(check_header(&encoded)?)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_base64())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_base64(&text).map_err(serde::de::Error::custom)
    }
}

// The container: cookie, length, zlib stream.

fn envelope(zlib: &[u8]) -> Vec<u8> {
    let length = u32::try_from(zlib.len()).expect("a histogram is below 4 GiB");
    [&COMPRESSED_COOKIE.to_be_bytes()[..], &length.to_be_bytes(), zlib].concat()
}

fn open_envelope(bytes: &[u8]) -> Result<&[u8], HistogramError> {
    let mut rest = Reader(bytes);
    rest.expect(COMPRESSED_COOKIE, "container's cookie")?;
    rest.expect_length("container's length")?;
    Ok(rest.0)
}

// zlib with stored blocks: two bytes of header, blocks of at most 65,535 bytes, a checksum.

const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];

fn stored_zlib(data: &[u8]) -> Vec<u8> {
    let mut out = ZLIB_HEADER.to_vec();
    let last = data.len().div_ceil(STORED_MAX).saturating_sub(1);
    for (index, block) in data.chunks(STORED_MAX).enumerate() {
        let length = u16::try_from(block.len()).expect("a block is at most 65,535 bytes");
        out.push(u8::from(index == last));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(block);
    }
    out.extend(adler32(data).to_be_bytes());
    out
}

fn read_stored_zlib(zlib: &[u8]) -> Result<Vec<u8>, HistogramError> {
    let mut rest = Reader(zlib);
    if rest.take::<2>("zlib header")? != ZLIB_HEADER {
        return Err(HistogramError::Damaged { part: "zlib header" });
    }
    let mut data = Vec::with_capacity(zlib.len());
    while read_stored_block(&mut rest, &mut data)? == More::Blocks {}
    rest.expect(adler32(&data), "checksum")?;
    rest.expect_end("end of the zlib stream")?;
    Ok(data)
}

#[derive(PartialEq)]
enum More {
    Blocks,
    Nothing,
}

fn read_stored_block(rest: &mut Reader<'_>, data: &mut Vec<u8>) -> Result<More, HistogramError> {
    const PART: &str = "stored block";
    let [kind] = rest.take(PART)?;
    let length = u16::from_le_bytes(rest.take(PART)?);
    let check = u16::from_le_bytes(rest.take(PART)?);
    if kind > 1 || length != !check {
        return Err(HistogramError::Damaged { part: PART });
    }
    data.extend(rest.slice(usize::from(length), PART)?);
    Ok(if kind == 1 { More::Nothing } else { More::Blocks })
}

/// RFC 1950, section 8.2.
fn adler32(data: &[u8]) -> u32 {
    let (low, high) = data.iter().fold((1u32, 0u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

// The V2 encoding: a header of 40 bytes, then the counters as variable-length words.

fn check_header(encoded: &[u8]) -> Result<&[u8], HistogramError> {
    let mut rest = Reader(encoded);
    rest.expect(ENCODING_COOKIE, "encoding's cookie")?;
    let length = u32::from_be_bytes(rest.take("header")?);
    rest.expect(0, "normalizing offset")?;
    let digits = u32::from_be_bytes(rest.take("header")?);
    let low = u64::from_be_bytes(rest.take("header")?);
    let high = u64::from_be_bytes(rest.take("header")?);
    if (low, high, digits) != (LOWEST_NS, HIGHEST_NS, u32::from(DIGITS)) {
        return Err(HistogramError::OtherRange { low, high, digits });
    }
    if u64::from_be_bytes(rest.take("header")?) != 1f64.to_bits() {
        return Err(HistogramError::Damaged { part: "conversion ratio" });
    }
    rest.is_length(length, "encoding's length")?;
    Ok(rest.0)
}

/// A word >= 0 is the count of the next counter; a word -n skips n counters that are zero.
fn read_counts(words: &[u8]) -> Result<Histogram, HistogramError> {
    const PART: &str = "list of counters";
    let mut histogram = Histogram::new();
    let mut rest = Reader(words);
    let mut index = 0usize;
    while !rest.0.is_empty() {
        let word = rest.word(PART)?;
        let step = if word < 0 { word.unsigned_abs() } else { 1 };
        let step = usize::try_from(step).map_err(|_| HistogramError::Damaged { part: PART })?;
        let next = index.saturating_add(step);
        if next > COUNTERS {
            return Err(HistogramError::Damaged { part: PART });
        }
        histogram.add_count(index, word.max(0).unsigned_abs())?;
        index = next;
    }
    Ok(histogram)
}

impl Histogram {
    fn add_count(&mut self, index: usize, count: u64) -> Result<(), HistogramError> {
        if count > MAX_COUNT - self.count() {
            return Err(HistogramError::TooManyCounts);
        }
        if count > 0 {
            self.0.saturating_record_n(value_at(index), count);
        }
        Ok(())
    }
}

/// Lowest value of a counter: below 2048 each value has its own, then 1024 counters share each
/// octave.
fn value_at(index: usize) -> u64 {
    let octave = (index / HALF).saturating_sub(1);
    ((index - octave * HALF) as u64) << octave
}

/// What is left to read; every method names the part that it reads, for the error.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn slice(&mut self, length: usize, part: &'static str) -> Result<&'a [u8], HistogramError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(HistogramError::Damaged { part })?;
        self.0 = rest;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], HistogramError> {
        let bytes = self.slice(N, part)?;
        Ok(bytes.try_into().expect("slice() returned N bytes"))
    }

    fn expect(&mut self, wanted: u32, part: &'static str) -> Result<(), HistogramError> {
        let found = u32::from_be_bytes(self.take(part)?);
        if found == wanted { Ok(()) } else { Err(HistogramError::Damaged { part }) }
    }

    /// Reads a length, which must be that of all that follows.
    fn expect_length(&mut self, part: &'static str) -> Result<(), HistogramError> {
        let length = u32::from_be_bytes(self.take(part)?);
        self.is_length(length, part)
    }

    fn is_length(&self, length: u32, part: &'static str) -> Result<(), HistogramError> {
        let same = usize::try_from(length).is_ok_and(|length| length == self.0.len());
        if same { Ok(()) } else { Err(HistogramError::Damaged { part }) }
    }

    fn expect_end(&self, part: &'static str) -> Result<(), HistogramError> {
        if self.0.is_empty() { Ok(()) } else { Err(HistogramError::Damaged { part }) }
    }

    /// A ZigZag LEB128-64b9B word: seven bits a byte, the ninth byte whole.
    fn word(&mut self, part: &'static str) -> Result<i64, HistogramError> {
        let mut value = 0u64;
        for position in 0..WORD {
            let [byte] = self.take(part)?;
            let last = position == WORD - 1 || byte & 0x80 == 0;
            let bits = if position == WORD - 1 { byte } else { byte & 0x7f };
            value |= u64::from(bits) << (7 * position);
            if last {
                break;
            }
        }
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer as TheirDeserializer;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    /// The bytes of a histogram whose counters are `words`, all lengths and checksums right.
    fn with_words(words: &[u8]) -> String {
        let mut encoded = Vec::new();
        V2Serializer::new().serialize(&Histogram::new().0, &mut encoded).unwrap();
        encoded.truncate(HEADER);
        encoded[4..8].copy_from_slice(&(words.len() as u32).to_be_bytes());
        encoded.extend(words);
        STANDARD.encode(envelope(&stored_zlib(&encoded)))
    }

    #[test]
    fn figures_of_known_values() {
        let values: Vec<u64> = (1..=1000).map(|us| us * 1000).collect();
        let histogram = of(&values);
        assert_eq!(histogram.count(), 1000);
        assert!((histogram.mean_ns() / 500_500.0 - 1.0).abs() < 5e-4);
        assert_eq!(histogram.min(), 1000);
        for (percent, exact) in [(50.0, 500_000u64), (99.0, 990_000), (100.0, 1_000_000)] {
            let got = histogram.percentile(percent);
            assert!(got >= exact && got - exact <= exact / 1000, "{percent}: {got}");
        }
        assert_eq!(histogram.percentile(100.0), histogram.max());
    }

    #[test]
    fn an_empty_histogram_has_no_figures_and_does_not_panic() {
        let empty = Histogram::new();
        assert!(empty.is_empty());
        assert_eq!((empty.count(), empty.min(), empty.max(), empty.saturated()), (0, 0, 0, 0));
        assert_eq!(empty.percentile(99.0), 0);
        assert_eq!(empty.mean_ns(), 0.0);
        assert_eq!(Histogram::from_base64(&empty.to_base64()), Ok(empty));
    }

    #[test]
    fn percentiles_outside_their_range_are_taken_to_its_ends() {
        let histogram = of(&[10, 20, 30]);
        assert_eq!(histogram.percentile(-5.0), 10);
        assert_eq!(histogram.percentile(f64::NAN), 10);
        assert_eq!(histogram.percentile(f64::INFINITY), 30);
    }

    #[test]
    fn values_beyond_the_range_are_counted() {
        let histogram = of(&[0, 5, HIGHEST_NS - 100_000_000, HIGHEST_NS, HIGHEST_NS + 1, u64::MAX]);
        assert_eq!(histogram.count(), 6);
        assert_eq!(histogram.saturated(), 3);
        assert_eq!(histogram.min(), 0);
        let back = Histogram::from_base64(&histogram.to_base64()).unwrap();
        assert_eq!(back.saturated(), 3);
    }

    #[test]
    fn the_constants_describe_the_counters() {
        let histogram = Histogram::new();
        assert_eq!(histogram.0.distinct_values(), COUNTERS);
        for (index, counter) in histogram.0.iter_all().enumerate() {
            let lowest = histogram.0.lowest_equivalent(counter.value_iterated_to());
            assert_eq!(value_at(index), lowest, "counter {index}");
        }
    }

    /// Written by this module, read back by PyPI's `hdrhistogram` 0.10.8:
    /// `HdrHistogram.decode(text)` has a total of 5, a minimum of 1000 and
    /// `get_value_at_percentile(50)` of 25007.
    #[test]
    fn the_text_form_is_the_one_that_others_read() {
        let text = of(&[1000, 25_000, 25_001, 1_000_000, HIGHEST_NS]).to_base64();
        assert_eq!(text, OTHERS_READ);
    }

    const OTHERS_READ: &str =
        "HISTFAAAAEB4AQE1AMr/HISTEwAAAA0AAAAAAAAAAwAAAAAAAAABAAAADfhHWAA/8AAAAAAAAM8PAuFIBItWArP9AQKnHAjO";

    #[test]
    fn hostile_texts_are_refused_with_the_part_that_is_wrong() {
        let damaged = |part| Err(HistogramError::Damaged { part });
        let read = Histogram::from_base64;
        assert_eq!(read(""), damaged("container's cookie"));
        assert!(matches!(read("§"), Err(HistogramError::NotBase64 { .. })));
        let long = "A".repeat(MAX_BASE64 + 4);
        assert_eq!(read(&long), Err(HistogramError::TooLong { length: long.len() }));
        // Skips i64::MIN counters: the negation that overflows.
        assert_eq!(read(&with_words(&[0xff; 9])), damaged("list of counters"));
        // Counts i64::MAX.
        let most = [&[0xfe][..], &[0xff; 8]].concat();
        assert_eq!(read(&with_words(&most)), Err(HistogramError::TooManyCounts));
        // One counter more than there are.
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
        assert_eq!(
            Histogram::from_base64(&text),
            Err(HistogramError::OtherRange { low: 1, high: u64::MAX, digits: 5 })
        );
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
        fn merging_is_recording_all(
            left in prop::collection::vec(any_time(), 0..100),
            right in prop::collection::vec(any_time(), 0..100),
        ) {
            let mut merged = of(&left);
            merged.merge(&of(&right));
            prop_assert_eq!(merged, of(&[left, right].concat()));
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
            prop_assert!(Histogram::from_base64(&STANDARD.encode(&bytes)).is_err());
        }
    }

    /// Times spread over all magnitudes, and some beyond the range.
    fn any_time() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift)
    }
}
