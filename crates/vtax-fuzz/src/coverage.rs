//! Fuzzing with libFuzzer for `make fuzz`, which searches for inputs that reach new code.
//!
//! The arguments after `--` are libFuzzer's, so `TEST-PROGRAM --exact TEST -- -runs=1000` runs a target. Without such
//! arguments the targets do nothing.

use std::{
    cell::OnceCell,
    env,
    ffi::{CString, c_char, c_int},
    fs, panic,
    path::Path,
    process, ptr, slice, thread,
};

// This crate links libFuzzer's C++ part.
use libfuzzer_sys as _;

use crate::{LENGTH_MOST, inputs::Corpus};

/// Option with which libFuzzer selects a minimal set of inputs with the same coverage.
const MERGE: &str = "-set_cover_merge=1";
/// Prefix of the names of seed files; the names of libFuzzer's files are hexadecimal numbers.
const SEED: &str = "seed-";

thread_local! {
    static TARGET: OnceCell<Box<dyn Fn(&[u8])>> = const { OnceCell::new() };
}

unsafe extern "C" {
    /// Entry point of libFuzzer (`FuzzerDriver.cpp`). It may change the pointers. It ends the process, except with
    /// arguments that request nothing.
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        target: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// The C++ part of the crate libfuzzer-sys has a `main`, which is not linked in but refers to this symbol.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
extern "C" fn rust_fuzzer_test_input(_: *const u8, _: usize) -> c_int {
    0
}

extern "C" fn one(bytes: *const u8, length: usize) -> c_int {
    // SAFETY: libFuzzer passes this number of bytes. It may be zero, possibly with a null pointer.
    let input = if length == 0 { &[] } else { unsafe { slice::from_raw_parts(bytes, length) } };
    let ended = panic::catch_unwind(|| TARGET.with(|target| target.get().map(|target| target(input))));
    // libFuzzer saves the input when the process aborts.
    if ended.is_err() {
        process::abort();
    }
    0
}

pub(crate) fn run(corpus: &Corpus, target: impl Fn(&[u8]) + 'static) {
    let wanted: Vec<String> = env::args().skip_while(|argument| argument != "--").skip(1).collect();
    if wanted.is_empty() {
        return;
    }
    TARGET.with(|cell| assert!(cell.set(Box::new(target)).is_ok(), "one target in a process"));
    let mut arguments = [vec![again()], defaults(corpus), wanted].concat();
    // To merge, libFuzzer restarts itself and then passes the directories itself.
    if arguments[1..].iter().all(|argument| argument.starts_with('-')) {
        let merges = arguments.iter().any(|argument| argument == MERGE);
        arguments.extend(folders(corpus, merges));
    }
    let arguments: Vec<CString> = arguments.into_iter().map(|text| CString::new(text).expect("no zero")).collect();
    let mut pointers: Vec<*mut c_char> = arguments.iter().map(|text| text.as_ptr().cast_mut()).collect();
    pointers.push(ptr::null_mut());
    let (mut count, mut pointers) = (c_int::try_from(arguments.len()).expect("few"), pointers.as_mut_ptr());
    // SAFETY: the arguments are zero-terminated texts that live until the end of this function, followed by a null
    // pointer.
    let status = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut pointers, one) };
    process::exit(status);
}

/// Returns the command with which libFuzzer restarts this target; it appends its own arguments, for the shell.
fn again() -> String {
    let program = env::current_exe().expect("this program");
    let current = thread::current();
    let test = current.name().expect("libtest names a test's thread after it");
    format!("{} --exact {test} --nocapture --", program.display())
}

fn defaults(corpus: &Corpus) -> Vec<String> {
    let failed = corpus.scratch("failed");
    vec![
        format!("-max_len={LENGTH_MOST}"),
        format!("-timeout={}", 2 * crate::SLOW.as_secs()),
        format!("-rss_limit_mb={}", crate::MEMORY_MOST >> 20),
        format!("-artifact_prefix={}/", failed.display()),
    ]
}

/// Returns the directories; new inputs go into the first one.
fn folders(corpus: &Corpus, merges: bool) -> Vec<String> {
    let (found, seeds) = (corpus.scratch("found"), corpus.scratch("seeds"));
    write(&corpus.seeds, &seeds);
    let mut folders = vec![found, seeds];
    if merges {
        // The seeds are in the code, so the merge keeps only inputs that reach more code than they do.
        let merged = corpus.scratch("merged");
        write(&corpus.seeds, &merged);
        folders.insert(0, merged);
    }
    folders.extend(Some(corpus.folder()).filter(|folder| folder.is_dir()));
    folders.into_iter().map(|folder| folder.display().to_string()).collect()
}

fn write(seeds: &[Vec<u8>], folder: &Path) {
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("{SEED}{number}")), seed).expect("a seed is written");
    }
}
