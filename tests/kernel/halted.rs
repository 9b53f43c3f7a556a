//! A kernel that halts at once, for tests that start domains many times but need nothing in them. It saves the CPU time
//! of each boot.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use vtax_guest::kernel::Kernel;

use super::Bench;

/// `hlt`. Interrupts are disabled at the entry, so that the CPU stays halted.
const HALT: u8 = 0xf4;
/// Offset of the entry in a bzImage (Documentation/arch/x86/boot.rst).
const ENTRY: usize = 0x200;
/// Offset of `payload_length`. Without a payload, vtax boots the image and not the kernel in it.
const PAYLOAD_LENGTH: usize = 0x24c;

/// Writes a tree with such a kernel and the modules of the real one into the bench. Returns the value for
/// `VTAX_KERNEL`.
pub(super) fn tree(bench: &Bench) -> PathBuf {
    let kernel = Kernel::find(None).expect("`make kernel` has unpacked one");
    let tree = bench.path().join("halted");
    let modules = tree.join("lib/modules");
    for folder in [&tree.join("boot"), &modules] {
        fs::create_dir_all(folder).expect("a directory of the test");
    }
    symlink(&kernel.modules, modules.join(&kernel.release)).expect("a link of the test");
    let mut image = fs::read(&kernel.image).expect("the kernel's image");
    image[ENTRY] = HALT;
    image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].fill(0);
    fs::write(tree.join("boot").join(format!("vmlinuz-{}", kernel.release)), image).expect("a file of the test");
    tree
}
