//! The buffers that the kernel reads and writes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The buffers of all slots, one after another. They are used only through pointers. A reference to all of them would
/// also cover bytes that the kernel is writing.
pub(super) struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    stride: usize,
    pub(super) send_length: usize,
    pub(super) receive_length: usize,
}

impl Memory {
    /// Allocates the buffers. None if the size exceeds the address space.
    pub(super) fn new(count: usize, send_length: usize, receive_length: usize) -> Option<Self> {
        const CACHE_LINE: usize = 64;
        let stride = send_length.checked_add(receive_length)?.checked_next_multiple_of(CACHE_LINE)?;
        let layout = Layout::from_size_align(stride.checked_mul(count)?, CACHE_LINE).ok()?;
        let start = match layout.size() {
            0 => layout.dangling_ptr(),
            // SAFETY: the size is not zero.
            _ => NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout)),
        };
        Some(Self { start, layout, stride, send_length, receive_length })
    }

    /// Returns the slot's memory. `slot` must be below the number of slots.
    #[inline]
    pub(super) fn send(&self, slot: usize) -> *mut u8 {
        // SAFETY: the slot's memory is within the allocation.
        unsafe { self.start.as_ptr().add(slot * self.stride) }
    }

    #[inline]
    pub(super) fn receive(&self, slot: usize) -> *mut u8 {
        // SAFETY: the receive buffer follows the send buffer in the slot's memory.
        unsafe { self.send(slot).add(self.send_length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}
