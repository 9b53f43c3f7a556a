//! Data that the flows of an end send without copying. It is created once, when the first flow requests it.

use std::{
    fs::File,
    io,
    iter::repeat_n,
    os::unix::fs::FileExt,
    sync::{Arc, OnceLock},
};

use rustix::fs::{MemfdFlags, memfd_create};

/// The byte that fills all messages of this engine.
const FILL: u8 = 0x55;

/// Size of the pieces in which the file is written.
const PIECE: usize = 64 << 10;

/// A message in memory and one in the page cache. All threads share them, since they are never changed.
#[derive(Default)]
pub(crate) struct Supply {
    memory: OnceLock<Arc<[u8]>>,
    file: OnceLock<File>,
}

impl Supply {
    /// A message of this test.
    pub(crate) fn memory(&self, len: usize) -> Arc<[u8]> {
        self.memory.get_or_init(|| repeat_n(FILL, len).collect()).clone()
    }

    /// A message of this test in a memory file. If two threads create it at the same time, one of the two files is
    /// dropped.
    pub(crate) fn file(&self, len: usize) -> io::Result<&File> {
        if self.file.get().is_none() {
            let _ = self.file.set(filled(len)?);
        }
        Ok(self.file.get().expect("it was set, here or by another thread"))
    }
}

fn filled(len: usize) -> io::Result<File> {
    let file = File::from(memfd_create("message", MemfdFlags::CLOEXEC)?);
    let piece = vec![FILL; PIECE.min(len)];
    for at in (0..len).step_by(PIECE) {
        file.write_all_at(&piece[..PIECE.min(len - at)], at as u64)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hold_a_message_and_are_created_once() {
        let supply = Supply::default();
        for len in [1, PIECE, PIECE + 1, 3 * PIECE - 1] {
            let mut bytes = vec![0; len];
            let file = filled(len).unwrap();
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(file.metadata().unwrap().len(), len as u64);
            assert!(bytes.iter().all(|byte| *byte == FILL));
        }
        assert!(std::ptr::eq(supply.file(70_000).unwrap(), supply.file(70_000).unwrap()));
        assert_eq!(supply.memory(70_000).len(), 70_000);
        assert!(Arc::ptr_eq(&supply.memory(70_000), &supply.memory(70_000)));
    }
}
