//! Lines with a checksum.
//!
//! A CRC-32 detects every change confined to 32 consecutive bits, so a changed byte is always detected.

/// Length of the eight digits and the space before a line's content.
const PREFIX: usize = 9;

/// Returns a line with `content`, which has no newline: checksum, content, newline.
pub fn line(content: &[u8]) -> Vec<u8> {
    [format!("{:08x} ", crc32fast::hash(content)).as_bytes(), content, b"\n"].concat()
}

/// Returns the content of a line, which is passed without its newline.
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
