//! Fuzzing for `cargo test`: the corpus, then mutated inputs until the time is over.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    time::{Duration, Instant},
};

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, clock_gettime};

use crate::{SECONDS, SLOW, inputs::Corpus, mutate, watch::InputWatch};

pub(crate) fn run(corpus: &Corpus, target: impl Fn(&[u8])) {
    let trial = Trial { corpus, target, watch: InputWatch::start(corpus) };
    let inputs: Vec<Vec<u8>> = corpus.seeds.iter().cloned().chain(corpus.files()).collect();
    inputs.iter().for_each(|input| trial.of(input));
    let mut random = Xoshiro256PlusPlus::from_seed(random_seed());
    let (began, most) = (Instant::now(), limit());
    while began.elapsed() < most {
        trial.of(&mutate::changed(&inputs, &mut random));
    }
}

fn limit() -> Duration {
    let wanted = env::var("VTAX_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(wanted.unwrap_or(SECONDS))
}

/// Returns a random seed, so that each run tries other inputs. It need not be reproducible, because a failing input is
/// saved.
fn random_seed() -> [u8; 32] {
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).expect("the kernel has randomness");
    seed
}

struct Trial<'a, F> {
    corpus: &'a Corpus,
    target: F,
    watch: InputWatch,
}

impl<F: Fn(&[u8])> Trial<'_, F> {
    fn of(&self, input: &[u8]) {
        self.watch.begin(input);
        let began = cpu_time();
        let ended = panic::catch_unwind(AssertUnwindSafe(|| (self.target)(input)));
        let took = cpu_time().saturating_sub(began);
        let why = match ended {
            Err(_) => "made it panic (see above)".to_owned(),
            Ok(()) if took > SLOW => format!("took {took:?}"),
            Ok(()) => return,
        };
        let (name, path) = (&self.corpus.name, keep(self.corpus, input));
        panic!("{name}: an input of {} bytes {why}; it is in {}", input.len(), path.display());
    }
}

/// Returns the CPU time of this thread, which excludes all other activity on the machine.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Saves a failing input to a file, and returns the file's path.
pub(crate) fn keep(corpus: &Corpus, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = corpus.scratch("failed").join(format!("{:016x}", hasher.finish()));
    fs::write(&path, input).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;

    fn failure(target: impl Fn(&[u8]) -> Option<()> + 'static, seed: &str) -> String {
        let failed = panic::catch_unwind(AssertUnwindSafe(|| fuzz("of-this-crate", &[seed], target)));
        *failed.expect_err("it fails").downcast::<String>().expect("a message")
    }

    #[test]
    fn an_input_that_fails_is_kept() {
        let hostile = |bytes: &[u8]| {
            assert!(bytes.len() < 9);
            Some(())
        };
        let message = failure(hostile, "harmless");
        let path = message.rsplit_once(" is in ").expect("it names the file").1;
        assert!(fs::read(path).expect("it is there").len() >= 9, "{message}");
        fs::remove_file(path).expect("it is ours");
    }

    #[test]
    fn seeds_must_be_understood_and_short() {
        assert!(failure(|_| None, "seed").contains("doesn't understand its seed number 1"));
        let long = "x".repeat(crate::LENGTH_MOST + 1);
        assert!(failure(|_| Some(()), &long).contains("bytes"));
    }

    #[test]
    fn every_kind_of_change_keeps_to_the_length() {
        let inputs = [Vec::new(), b"a 12 b".to_vec(), vec![7; crate::LENGTH_MOST]];
        let mut random = Xoshiro256PlusPlus::from_seed([1; 32]);
        let changed: Vec<Vec<u8>> = (0..2000).map(|_| mutate::changed(&inputs, &mut random)).collect();
        assert!(changed.iter().all(|input| input.len() <= crate::LENGTH_MOST));
        assert!(changed.iter().filter(|input| !inputs.contains(input)).count() > 1000);
    }
}
