//! Text form of a histogram, with a parser for untrusted text.
//!
//! The library that writes the V2 encoding also has a parser. It isn't used, because a hostile text makes it panic
//! (hdrhistogram 7.6 negates a word without a check, which overflows for `i64::MIN`), and because it allocates as much
//! memory as the range in the text requests.

use adler2::adler32_slice;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_PARSE_ZLIB_HEADER, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::{COUNTERS, DIGITS, HIGHEST_NS, Histogram, HistogramError, LOWEST_NS, MAX_COUNT, SparseHistogram};

const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
const ENCODING_COOKIE: u32 = 0x1c84_9313;
const ENVELOPE: usize = 8;
const HEADER: usize = 40;
/// Length of the longest count (LEB128-64b9B).
const WORD: usize = 9;
const STORED_MAX: usize = 65_535;
const STORED_HEADER: usize = 5;

/// Length of a histogram in which every counter has a word of full length.
const MAX_ENCODED: usize = HEADER + COUNTERS * WORD;

/// Number of characters of such a histogram. Deflating never requires more: a block that doesn't shrink is stored.
pub(super) const MAX_BASE64: usize = {
    let blocks = MAX_ENCODED.div_ceil(STORED_MAX);
    (ENVELOPE + 2 + blocks * STORED_HEADER + MAX_ENCODED + 4).div_ceil(3) * 4
};

pub(super) fn write(histogram: &Histogram) -> String {
    STANDARD.encode(envelope(&stored_zlib(&encode(histogram))))
}

/// Returns only the V2 encoding.
pub(super) fn encode(histogram: &Histogram) -> Vec<u8> {
    let mut encoded = Vec::new();
    V2Serializer::new()
        .serialize(&histogram.0, &mut encoded)
        .expect("memory takes all bytes, and no counter reaches 2^63 by recording");
    encoded
}

/// Parses the output of [`encode`].
pub(super) fn decode(encoded: &[u8]) -> Result<SparseHistogram, HistogramError> {
    read_counts(check_header(encoded)?)
}

pub(super) fn read(text: &str) -> Result<SparseHistogram, HistogramError> {
    if text.len() > MAX_BASE64 {
        return Err(HistogramError::TooLong { length: text.len() });
    }
    let bytes = STANDARD.decode(text).map_err(|error| HistogramError::NotBase64 { why: error.to_string() })?;
    decode(&inflate(open_envelope(&bytes)?)?)
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
    out.extend(adler32_slice(data).to_be_bytes());
    out
}

/// Returns the contents of the stream, stored or deflated. The largest buffer fits the fullest histogram; longer
/// contents are refused.
fn inflate(zlib: &[u8]) -> Result<Vec<u8>, HistogramError> {
    // Stored blocks, which vtax writes, hold less than their stream, so that a run of thousands of samples doesn't
    // require a buffer of a quarter of a megabyte for each.
    match inflate_into(zlib.len().min(MAX_ENCODED), zlib) {
        Err(HistogramError::Inflated) => inflate_into(MAX_ENCODED, zlib),
        done => done,
    }
}

fn inflate_into(most: usize, zlib: &[u8]) -> Result<Vec<u8>, HistogramError> {
    const PART: &str = "zlib stream";
    let mut data = vec![0; most];
    let flags = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, read, written) = decompress(&mut DecompressorOxide::new(), zlib, &mut data, 0, flags);
    match status {
        TINFLStatus::Done if read == zlib.len() => {
            data.truncate(written);
            Ok(data)
        }
        TINFLStatus::Done => Err(HistogramError::Damaged { part: "end of the zlib stream" }),
        TINFLStatus::Adler32Mismatch => Err(HistogramError::Damaged { part: "checksum" }),
        TINFLStatus::HasMoreOutput => Err(HistogramError::Inflated),
        _ => Err(HistogramError::Damaged { part: PART }),
    }
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

/// Parses counters: a word >= 0 is the count of the next counter; a word -n skips n counters that are zero.
fn read_counts(words: &[u8]) -> Result<SparseHistogram, HistogramError> {
    const PART: &str = "list of counters";
    let mut used = Vec::with_capacity(words.len().min(COUNTERS));
    let mut total = 0;
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
        let count = word.max(0).unsigned_abs();
        if count > MAX_COUNT - total {
            return Err(HistogramError::TooManyCounts);
        }
        total += count;
        if count > 0 {
            used.push((index as u32, count));
        }
        index = next;
    }
    Ok(SparseHistogram(used))
}

/// Remaining input. Every method takes the name of the part that it parses, for the error.
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

    /// Reads a length, which must be that of all remaining bytes.
    fn expect_length(&mut self, part: &'static str) -> Result<(), HistogramError> {
        let length = u32::from_be_bytes(self.take(part)?);
        self.is_length(length, part)
    }

    fn is_length(&self, length: u32, part: &'static str) -> Result<(), HistogramError> {
        let same = usize::try_from(length).is_ok_and(|length| length == self.0.len());
        if same { Ok(()) } else { Err(HistogramError::Damaged { part }) }
    }

    /// Reads a ZigZag LEB128-64b9B word: seven bits per byte, the ninth byte whole.
    fn word(&mut self, part: &'static str) -> Result<i64, HistogramError> {
        let value = match self.0 {
            // Nearly all of a run's millions of words have one byte.
            [byte @ ..0x80, rest @ ..] => {
                self.0 = rest;
                u64::from(*byte)
            }
            _ => self.long_word(part)?,
        };
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    fn long_word(&mut self, part: &'static str) -> Result<u64, HistogramError> {
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
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
