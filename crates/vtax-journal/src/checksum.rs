//! Lines with a checksum.
//!
//! A CRC-32 sees every change of up to 32 bits in a row, so a changed byte is seen for certain.

/// The eight digits and the space before a line's content.
const PREFIX: usize = 9;

/// Makes a line of `content`, which has no newline: checksum, content, newline.
pub fn line(content: &[u8]) -> Vec<u8> {
    [format!("{:08x} ", crc32fast::hash(content)).as_bytes(), content, b"\n"].concat()
}

/// The content of a line, which is without its newline here.
///
/// # Errors
/// Describes the damage of the line.
pub fn content(line: &[u8]) -> Result<&[u8], &'static str> {
    let Some((prefix, content)) = line.split_at_checked(PREFIX) else { return Err("the line is too short") };
    let wanted = format!("{:08x} ", crc32fast::hash(content));
    if prefix == wanted.as_bytes() { Ok(content) } else { Err("the line was changed: wrong checksum") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_changed_byte_is_seen(text in "[ -~]{0,300}", at: proptest::sample::Index, byte: u8) {
            let whole = line(text.as_bytes());
            let whole = &whole[..whole.len() - 1];
            prop_assert_eq!(content(whole), Ok(text.as_bytes()));
            let mut changed = whole.to_vec();
            let at = at.index(changed.len());
            changed[at] = byte;
            prop_assert_eq!(content(&changed).is_ok(), changed == whole);
        }
    }
}
