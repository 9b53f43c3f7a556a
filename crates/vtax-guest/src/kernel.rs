//! The kernel that guests boot, with its modules.

use std::{
    env, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use vtax_sys::foreign_file;

use super::error::{GuestError, MissingForGuests};

/// The variable that names the directory of an unpacked kernel package: `boot/vmlinuz-*` and `lib/modules/*`.
const VARIABLE: &str = "VTAX_KERNEL";

/// A kernel and its modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// A bzImage.
    pub image: PathBuf,
    /// The directory of its modules, `…/lib/modules/RELEASE`.
    pub modules: PathBuf,
    /// Kernel release as `uname -r` reports it in the guest.
    pub release: String,
}

impl Kernel {
    /// Finds the kernel for guests. Uses the first of these: the image or the tree of an unpacked package that
    /// `explicit` names; the one that `VTAX_KERNEL` names; the running kernel, if its image can be read; the kernel
    /// that `make kernel` put into the cache. If a tree has several kernels, the newest is used.
    pub fn find(explicit: Option<&Path>) -> Result<Kernel, GuestError> {
        Places::here().find(explicit)
    }
}

struct Places {
    named: Option<PathBuf>,
    root: PathBuf,
    running: String,
    cache: Option<PathBuf>,
}

impl Places {
    fn here() -> Places {
        let running = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Places {
            named: env::var_os(VARIABLE).map(PathBuf::from),
            root: PathBuf::from("/"),
            running: running.trim_end().to_owned(),
            cache: super::image::cache().ok().map(|cache| cache.join("kernel")),
        }
    }

    fn find(&self, explicit: Option<&Path>) -> Result<Kernel, GuestError> {
        let named = explicit.or(self.named.as_deref());
        if let Some(path) = named {
            let refuse = |why| MissingForGuests::Kernel { path: path.to_owned(), why }.into();
            return self.named(path).map_err(refuse);
        }
        let mut looked = Vec::new();
        let own = self.root.join("boot").join(format!("vmlinuz-{}", self.running));
        for path in [own].into_iter().chain(self.cache.clone()) {
            match self.named(&path) {
                Ok(kernel) => return Ok(kernel),
                Err(why) => looked.push((path, why)),
            }
        }
        Err(MissingForGuests::NoKernel { looked }.into())
    }

    fn named(&self, path: &Path) -> Result<Kernel, String> {
        if path.is_dir() { self.tree(path) } else { self.image(path) }
    }

    /// The newest usable kernel of a tree.
    fn tree(&self, tree: &Path) -> Result<Kernel, String> {
        let boot = tree.join("boot");
        let entries = fs::read_dir(&boot).map_err(|error| missing(&error))?;
        let names = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz-"));
        let (kernels, whys): (Vec<_>, Vec<_>) = names.map(|entry| self.image(&entry.path())).partition(Result::is_ok);
        let newest = kernels.into_iter().flatten().max_by_key(|kernel| age(&kernel.release));
        let why = whys.into_iter().find_map(Result::err);
        newest.ok_or_else(|| why.unwrap_or_else(|| "has no boot/vmlinuz-*".to_owned()))
    }

    /// An image, with the modules of its tree, or those of this system.
    fn image(&self, image: &Path) -> Result<Kernel, String> {
        let release = release(image)?;
        let tree = image.parent().and_then(Path::parent);
        // Since Debian 13, kernel packages have their modules below `usr`.
        let parents = tree.into_iter().chain([self.root.as_path()]);
        let candidates = parents.flat_map(|parent| [parent.join("lib/modules"), parent.join("usr/lib/modules")]);
        let candidates: Vec<PathBuf> = candidates.map(|modules| modules.join(&release)).collect();
        match candidates.iter().find(|modules| modules.join("modules.builtin").is_file()) {
            Some(modules) => Ok(Kernel { image: image.to_owned(), modules: modules.clone(), release }),
            None => Err(format!(
                "is {release}, but {} has no modules for it",
                candidates.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
            )),
        }
    }
}

fn missing(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

/// The release of a bzImage: 0x20e holds its offset from 0x200 (Documentation/arch/x86/boot.rst).
fn release(image: &Path) -> Result<String, String> {
    // The text is in the real-mode part, which has at most 64 sectors.
    let mut setup = Vec::new();
    let file = foreign_file::open(image).map_err(|error| missing(&error))?;
    file.take(64 * 512).read_to_end(&mut setup).map_err(|error| missing(&error))?;
    parse_release(&setup).ok_or_else(|| "is not an x86 kernel image (bzImage)".to_owned())
}

pub(super) fn parse_release(setup: &[u8]) -> Option<String> {
    if setup.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let pointer = u16::from_le_bytes(setup.get(0x20e..0x210)?.try_into().ok()?);
    let text = setup.get(usize::from(pointer) + 0x200..)?;
    let release = text.split(|byte| matches!(byte, 0 | b' ')).next()?;
    let release = std::str::from_utf8(release).ok().filter(|text| !text.is_empty() && !text.contains('/'))?;
    Some(release.to_owned())
}

/// Orders releases numerically, so that 6.12 comes after 6.9.
fn age(release: &str) -> (Vec<u64>, String) {
    let numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    (numbers.collect(), release.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn image(release: &str) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        bytes.splice(0x300..0x300, format!("{release} (builder@host) #1\0").into_bytes());
        bytes
    }

    fn put(tree: &Path, release: &str, modules: &str) {
        for folder in ["boot".into(), format!("{modules}/{release}")] {
            fs::create_dir_all(tree.join(folder)).expect("a folder");
        }
        fs::write(tree.join(format!("boot/vmlinuz-{release}")), image(release)).expect("a file");
        fs::write(tree.join(format!("{modules}/{release}/modules.builtin")), "").expect("a file");
    }

    fn places(base: &Path) -> Places {
        Places { named: None, root: base.join("root"), running: "6.1.0".into(), cache: Some(base.join("cache")) }
    }

    #[test]
    fn the_newest_kernel_of_a_tree_is_chosen_numerically() {
        let base = tempfile::tempdir().expect("a folder");
        for release in ["6.9.1-cloud-amd64", "6.12.9+deb13-amd64", "5.10.0"] {
            put(&base.path().join("cache"), release, "usr/lib/modules");
        }
        let kernel = places(base.path()).find(None).expect("one of three");
        assert_eq!(kernel.release, "6.12.9+deb13-amd64");
        assert_eq!(kernel.modules, base.path().join("cache/usr/lib/modules/6.12.9+deb13-amd64"));
    }

    #[test]
    fn the_running_kernel_comes_before_the_cache_and_a_named_one_before_both() {
        let base = tempfile::tempdir().expect("a folder");
        put(&base.path().join("cache"), "6.12.0", "lib/modules");
        put(&base.path().join("root"), "6.1.0", "lib/modules");
        put(&base.path().join("named"), "5.15.0", "lib/modules");
        let mut places = places(base.path());
        assert_eq!(places.find(None).expect("the running one").release, "6.1.0");
        places.named = Some(base.path().join("named"));
        assert_eq!(places.find(None).expect("a tree").release, "5.15.0");
        let file = base.path().join("cache/boot/vmlinuz-6.12.0");
        assert_eq!(places.find(Some(&file)).expect("a file").release, "6.12.0");
    }

    #[test]
    fn without_a_kernel_every_place_is_named_with_a_remedy() {
        let base = tempfile::tempdir().expect("a folder");
        let error = places(base.path()).find(None).expect_err("there is none").to_string();
        assert!(error.contains("boot/vmlinuz-6.1.0 does not exist"), "{error}");
        assert!(error.contains("cache does not exist"), "{error}");
        assert!(error.contains("--kernel") && error.contains("make kernel"), "{error}");
    }

    #[test]
    fn an_unusable_named_kernel_is_not_replaced_by_another() {
        let base = tempfile::tempdir().expect("a folder");
        put(&base.path().join("cache"), "6.12.0", "lib/modules");
        let bare = base.path().join("vmlinuz");
        let refuse = |path: &Path| places(base.path()).find(Some(path)).expect_err("useless").to_string();
        assert!(refuse(&bare).contains("does not exist"));
        assert!(refuse("/dev/zero".as_ref()).contains("not a regular file"));
        fs::write(&bare, "text").expect("a file");
        assert!(refuse(&bare).contains("is not an x86 kernel image"));
        fs::write(&bare, image("6.6.6")).expect("a file");
        assert!(refuse(&bare).contains("is 6.6.6, but "));
    }

    proptest! {
        #[test]
        fn no_header_makes_the_parser_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..0x500)) {
            if let Some(magic) = bytes.get_mut(0x202..0x206) {
                magic.copy_from_slice(b"HdrS");
            }
            let _ = parse_release(&bytes);
        }
    }
}
