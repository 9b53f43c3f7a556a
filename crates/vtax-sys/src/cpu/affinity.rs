//! CPU affinity of a thread.

use std::io;

use vtax_model::cpus::CpuSet;

const BITS: u32 = libc::c_ulong::BITS;

/// Returns the CPU mask of a thread; 0 is the calling thread. The C library's `cpu_set_t` ends at 1024 CPUs. The kernel
/// refuses a buffer that is too short, so the buffer grows until the kernel accepts it.
pub(super) fn allowed(thread: libc::pid_t) -> io::Result<CpuSet> {
    let mut words = 16;
    loop {
        let mut mask = vec![0 as libc::c_ulong; words];
        // SAFETY: the buffer has the size that the kernel is given, and the kernel writes whole words. The C library's
        // type is only a name for such an array.
        let status = unsafe { libc::sched_getaffinity(thread, size_of_val(mask.as_slice()), mask.as_mut_ptr().cast()) };
        if status == 0 {
            return Ok(from_mask(&mask));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words as u32 * BITS >= CpuSet::MOST {
            return Err(error);
        }
        words *= 2;
    }
}

pub(super) fn pin(thread: libc::pid_t, cpus: &CpuSet) -> io::Result<()> {
    let highest = cpus.iter().last().unwrap_or(0);
    if highest >= CpuSet::MOST {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut mask = vec![0 as libc::c_ulong; (highest / BITS) as usize + 1];
    for cpu in cpus.iter() {
        mask[(cpu / BITS) as usize] |= 1 << (cpu % BITS);
    }
    // SAFETY: the buffer has the size that the kernel is given and is only read.
    let status = unsafe { libc::sched_setaffinity(thread, size_of_val(mask.as_slice()), mask.as_ptr().cast()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn from_mask(mask: &[libc::c_ulong]) -> CpuSet {
    let numbers = 0..mask.len() as u32 * BITS;
    numbers.filter(|cpu| mask[(cpu / BITS) as usize] & (1 << (cpu % BITS)) != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_word_of_a_mask_counts_from_64() {
        assert_eq!(from_mask(&[1, 2]), [0, BITS + 1].into_iter().collect());
    }
}
