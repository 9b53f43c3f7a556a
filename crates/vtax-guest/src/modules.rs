//! A guest's drivers: their modules, in loading order.
//!
//! A module's dependencies are read from the module itself: the kernel's build writes `depends=` into its section
//! `.modinfo`. `modules.dep` isn't used, since depmod(8) creates it when a package is installed, and a merely unpacked
//! package lacks it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use vtax_sys::foreign_file;

use super::{
    elf::Elf,
    error::{GuestError, MissingForGuests},
    kernel::Kernel,
};

/// No module is this large. The limit guards against damaged files, which may unpack to anything.
const LARGEST: u64 = 64 << 20;
/// The directories of a kernel's modules in the order of depmod.d(5): added modules come first.
const FOLDERS: [&str; 3] = ["updates", "extra", "kernel"];

/// A module, ready to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name, with `_` instead of `-`.
    pub name: String,
    /// The uncompressed object.
    pub object: Vec<u8>,
    /// True if it may fail to load.
    pub optional: bool,
}

/// The modules `wanted` and all modules that they depend on. A module comes after its dependencies. Built-in ones are
/// omitted. A name that begins with `-` is also omitted if there is no such module; such modules and their exclusive
/// dependencies come last and are optional.
pub fn closure(kernel: &Kernel, wanted: &[&str]) -> Result<Vec<Module>, GuestError> {
    let stock = Stock::of(kernel)?;
    let mut search = Search { stock, seen: BTreeSet::new(), ordered: Vec::new(), optional: false };
    for name in wanted.iter().filter(|name| !name.starts_with('-')) {
        search.add(name, None)?;
    }
    search.optional = true;
    for name in wanted.iter().filter_map(|name| name.strip_prefix('-')) {
        match search.add(name, None) {
            Err(GuestError::Missing { why: MissingForGuests::NoModule { .. } }) => {}
            added => added?,
        }
    }
    Ok(search.ordered)
}

struct Search<'a> {
    stock: Stock<'a>,
    seen: BTreeSet<String>,
    ordered: Vec<Module>,
    optional: bool,
}

impl Search<'_> {
    fn add(&mut self, name: &str, needed_by: Option<&str>) -> Result<(), GuestError> {
        let name = plain(name);
        if self.stock.built_in.contains(&name) || !self.seen.insert(name.clone()) {
            return Ok(());
        }
        let module = Module { optional: self.optional, ..self.stock.read(&name, needed_by)? };
        let about = about(&module.object);
        for other in &about.soft {
            if self.stock.files.contains_key(other) {
                self.add(other, Some(&name))?;
            }
        }
        for other in &about.depends {
            self.add(other, Some(&name))?;
        }
        self.ordered.push(module);
        Ok(())
    }
}

struct Stock<'a> {
    kernel: &'a Kernel,
    built_in: BTreeSet<String>,
    files: BTreeMap<String, PathBuf>,
}

impl Stock<'_> {
    fn of(kernel: &Kernel) -> Result<Stock<'_>, GuestError> {
        let list = kernel.modules.join("modules.builtin");
        let text = fs::read_to_string(&list).map_err(GuestError::file("read", &list))?;
        let built_in = text.lines().filter_map(|line| name_of(Path::new(line)));
        let mut files = BTreeMap::new();
        for folder in FOLDERS {
            collect(&kernel.modules.join(folder), &mut files)?;
        }
        Ok(Stock { kernel, built_in: built_in.collect(), files })
    }

    fn read(&self, name: &str, needed_by: Option<&str>) -> Result<Module, GuestError> {
        let path = self.files.get(name).ok_or_else(|| MissingForGuests::NoModule {
            module: name.to_owned(),
            needed_by: needed_by.map(str::to_owned),
            release: self.kernel.release.clone(),
            directory: self.kernel.modules.clone(),
        })?;
        let bytes = foreign_file::read(path, LARGEST).map_err(GuestError::file("read", path))?;
        let fail = |why: String| MissingForGuests::Module { path: path.clone(), why };
        let object = unpack(path, &bytes).map_err(|error| fail(format!("cannot be unpacked: {error}")))?;
        match Elf::parse(&object) {
            Some(_) => Ok(Module { name: name.to_owned(), object, optional: false }),
            None => Err(fail("is not an x86-64 object".to_owned()).into()),
        }
    }
}

/// A missing directory has no modules.
fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), GuestError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(GuestError::file("list", folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(GuestError::file("list", folder))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, files)?;
        } else if let Some(name) = name_of(&path) {
            files.entry(name).or_insert(path);
        }
    }
    Ok(())
}

/// The module name of a file: `…/virtio_net.ko.xz`.
fn name_of(path: &Path) -> Option<String> {
    let (name, ending) = path.file_name()?.to_str()?.split_once(".ko")?;
    matches!(ending, "" | ".xz" | ".zst" | ".gz").then(|| plain(name))
}

/// The kernel treats `-` and `_` in module names as equal.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

pub(super) fn unpack(path: &Path, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let reader: Box<dyn Read + '_> = match path.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => Box::new(XzReader::new(bytes, true)),
        Some("gz") => Box::new(GzDecoder::new(bytes)),
        Some("zst") => Box::new(StreamingDecoder::new(bytes).map_err(io::Error::other)?),
        _ => return Ok(bytes.to_vec()),
    };
    let mut object = Vec::new();
    reader.take(LARGEST).read_to_end(&mut object)?;
    Ok(object)
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    /// The module can't be loaded without these.
    depends: Vec<String>,
    /// The module uses these if available. Only modprobe(8) loads them with it.
    soft: Vec<String>,
}

/// Parses `.modinfo`: texts `key=value`, each terminated by a zero byte.
pub(super) fn about(object: &[u8]) -> About {
    let mut about = About::default();
    let section = Elf::parse(object).and_then(|elf| elf.section(".modinfo")).unwrap_or_default();
    for text in section.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok()) {
        match text.split_once('=') {
            Some(("depends", names)) => {
                about.depends.extend(names.split(',').filter(|name| !name.is_empty()).map(plain));
            }
            Some(("softdep", names)) => about.soft.extend(loaded_before(names)),
            _ => {}
        }
    }
    about
}

/// The modules before `post:` in `pre: a b post: c`.
fn loaded_before(names: &str) -> impl Iterator<Item = String> + '_ {
    let mut before = false;
    names.split_whitespace().filter_map(move |word| match word {
        "pre:" => {
            before = true;
            None
        }
        "post:" => {
            before = false;
            None
        }
        name => before.then(|| plain(name)),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::elf::object;

    fn kernel(base: &Path, built_in: &str, modules: &[(&str, &str)]) -> Kernel {
        let kernel = Kernel { image: base.join("vmlinuz"), modules: base.to_owned(), release: "6.12.0".to_owned() };
        fs::create_dir_all(base.join("kernel/drivers/net")).expect("a folder");
        fs::write(base.join("modules.builtin"), built_in).expect("a file");
        for (file, info) in modules {
            let info = info.replace(' ', "\0") + "\0";
            fs::write(base.join("kernel/drivers/net").join(file), object(".modinfo", info.as_bytes())).expect("a file");
        }
        kernel
    }

    fn names(modules: &[Module]) -> Vec<&str> {
        modules.iter().map(|module| module.name.as_str()).collect()
    }

    #[test]
    fn modules_follow_their_dependencies_and_built_in_ones_are_omitted() {
        let base = tempfile::tempdir().expect("a folder");
        let kernel = kernel(
            base.path(),
            "kernel/drivers/virtio/virtio-ring.ko\n",
            &[
                ("virtio_net.ko", "license=GPL depends=net_failover,virtio-ring"),
                ("net_failover.ko", "depends=failover"),
                ("failover.ko", "depends="),
                ("virtio-console.ko", "depends=virtio_ring"),
            ],
        );
        let modules = closure(&kernel, &["virtio-net", "virtio_console", "virtio_net", "virtio_ring"]);
        assert_eq!(
            names(&modules.expect("all are there")),
            ["failover", "net_failover", "virtio_net", "virtio_console"]
        );
    }

    #[test]
    fn a_missing_driver_is_named_with_the_kernel_and_who_needs_it() {
        let base = tempfile::tempdir().expect("a folder");
        let kernel = kernel(base.path(), "", &[("igb.ko", "depends=dca")]);
        let error = closure(&kernel, &["e1000e"]).expect_err("not there").to_string();
        assert!(error.contains("kernel 6.12.0 has no driver `e1000e`"), "{error}");
        let error = closure(&kernel, &["igb"]).expect_err("not there").to_string();
        assert!(error.contains("`dca`") && error.contains("(`igb` needs it)"), "{error}");
    }

    #[test]
    fn optional_modules_come_last_and_may_be_missing() {
        let base = tempfile::tempdir().expect("a folder");
        let kernel = kernel(
            base.path(),
            "",
            &[("kvm_amd.ko", "depends=kvm"), ("kvm.ko", "depends="), ("igb.ko", "depends="), ("dca.ko", "depends=a")],
        );
        let modules = closure(&kernel, &["-kvm_amd", "-kvm_intel", "-dca", "igb"]).expect("igb is there");
        assert_eq!(names(&modules), ["igb", "kvm", "kvm_amd"]);
        assert_eq!(modules.iter().map(|module| module.optional).collect::<Vec<_>>(), [false, true, true]);
        fs::write(base.path().join("kernel/bad.ko"), "broken").expect("a file");
        assert!(closure(&kernel, &["-bad"]).is_err());
    }

    #[test]
    fn circular_dependencies_terminate() {
        let base = tempfile::tempdir().expect("a folder");
        let kernel = kernel(base.path(), "", &[("a.ko", "depends=b"), ("b.ko", "depends=a")]);
        assert_eq!(names(&closure(&kernel, &["a"]).expect("both")), ["b", "a"]);
    }

    #[test]
    fn soft_dependencies_are_included_if_available() {
        let info = object(".modinfo", b"softdep=pre: a-b c post: d\0depends=\0softdep=pre: e\0");
        assert_eq!(about(&info).soft, ["a_b", "c", "e"]);
    }

    #[test]
    fn all_kinds_of_compression_are_unpacked() {
        let base = tempfile::tempdir().expect("a folder");
        let plain = object(".modinfo", b"depends=\0");
        let kernel = kernel(base.path(), "", &[]);
        let folder = base.path().join("kernel/drivers/net");
        for (file, bytes) in [("g.ko.gz", gzip(&plain)), ("x.ko.xz", xz(&plain)), ("z.ko.zst", zstd(&plain))] {
            fs::write(folder.join(file), bytes).expect("a file");
        }
        let modules = closure(&kernel, &["g", "x", "z"]).expect("all can be unpacked");
        assert!(modules.iter().all(|module| module.object == plain), "{modules:?}");
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        writer.write_all(bytes).and_then(|()| writer.finish()).expect("memory")
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::default()).expect("options");
        writer.write_all(bytes).expect("memory");
        writer.finish().expect("memory")
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn damaged_files_are_named() {
        let base = tempfile::tempdir().expect("a folder");
        let kernel = kernel(base.path(), "", &[]);
        for file in ["a.ko", "b.ko.xz", "c.ko.zst", "d.ko.gz"] {
            fs::write(base.path().join("kernel/drivers/net").join(file), "broken").expect("a file");
            let error = closure(&kernel, &[&file[..1]]).expect_err("broken").to_string();
            assert!(error.contains(file), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_file_makes_unpacking_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            ending in prop::sample::select(vec!["xz", "zst", "gz", "ko"]),
        ) {
            let _ = unpack(&PathBuf::from(format!("m.ko.{ending}")), &bytes).map(|object| about(&object));
        }
    }
}
