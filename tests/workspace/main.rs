//! The structure of the workspace: which crates may use which, and the licences of dependencies.

mod codes;
mod docs;
mod functions;
mod rooms;
mod schemas;
mod shape;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::{DepKindInfo, DependencyKind, Metadata, MetadataCommand, Package, PackageId};

fn metadata() -> Metadata {
    MetadataCommand::new().other_options(vec!["--locked".into()]).exec().expect("cargo tells about this workspace")
}

/// Lower layers first: a crate may use those of lower layers only.
const LAYERS: [&[&str]; 11] = [
    &["vtax-fuzz", "vtax-plot", "vtax-stats", "vtax-suite"],
    &["vtax-model"],
    &["vtax-sys"],
    &["vtax-fleet", "vtax-journal", "vtax-report", "vtax-store", "vtax-synthetic"],
    &[
        "vtax-change",
        "vtax-console",
        "vtax-container",
        "vtax-disk",
        "vtax-engine",
        "vtax-guest",
        "vtax-host",
        "vtax-libvirt",
    ],
    &["vtax-step"],
    &["vtax-lab", "vtax-tune"],
    &["vtax-domain", "vtax-wire"],
    &["vtax-agent", "vtax-run"],
    &["vtax-ui"],
    &["vtax"],
];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

#[test]
fn dependencies_point_down_only() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        let own = layer(&package.name).unwrap_or_else(|| panic!("{} has no layer", package.name));
        let normal = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
        for used in normal.filter_map(|dependency| layer(&dependency.name)) {
            assert!(used < own, "{} depends on something that isn't below it", package.name);
        }
    }
}

/// Licences compatible with "Apache-2.0 OR MIT" in a static binary.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "MIT",
    "MIT-0",
    "NCSA",
    "Unicode-3.0",
    "Zlib",
];

/// Licences allowed only in test programs, which are not distributed as binaries.
const OF_TESTS: [&str; 1] = ["MPL-2.0"];

/// Returns true if the licence expression permits our use: of each part joined by AND, one alternative must be
/// permitted.
fn allowed(expression: &str, shipped: bool) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    let known = |name: &str| LICENCES.contains(&name) || !shipped && OF_TESTS.contains(&name);
    let part = |part: &str| part.split(" OR ").any(|name| known(name.trim()));
    expression.split(" AND ").all(part)
}

/// Returns the dependencies of the binaries and of their build, which excludes those used only in tests.
fn shipped(metadata: &Metadata) -> BTreeSet<&PackageId> {
    let nodes = &metadata.resolve.as_ref().expect("cargo resolves").nodes;
    let mut found: BTreeSet<&PackageId> = BTreeSet::new();
    let mut left: Vec<&PackageId> = metadata.workspace_members.iter().collect();
    while let Some(id) = left.pop() {
        if !found.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node.id == *id).expect("every package has a node");
        let for_tests = |kind: &DepKindInfo| kind.kind == DependencyKind::Development;
        left.extend(node.deps.iter().filter(|dep| !dep.dep_kinds.iter().all(for_tests)).map(|dep| &dep.pkg));
    }
    found
}

#[test]
fn every_dependency_has_a_licence_that_we_may_use() {
    let metadata = metadata();
    let shipped = shipped(&metadata);
    let may_use = |package: &&Package| {
        package.license.as_deref().is_some_and(|licence| allowed(licence, shipped.contains(&package.id)))
    };
    let refused = metadata.packages.iter().filter(|package| !may_use(package));
    let refused: Vec<String> = refused.map(|package| format!("{} {:?}", package.name, package.license)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn the_licence_check_can_fail() {
    let shipped_as = |expression| allowed(expression, true);
    assert!(shipped_as("MIT/Apache-2.0") && shipped_as("GPL-3.0 OR MIT"));
    assert!(shipped_as("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(!shipped_as("GPL-3.0") && !shipped_as("MIT AND GPL-3.0") && !shipped_as("") && !shipped_as("MPL-2.0"));
    assert!(allowed("MPL-2.0", false) && !allowed("GPL-3.0", false));
    let metadata = metadata();
    let names: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let shipped = shipped(&metadata);
    let is_shipped = |name: &str| metadata.packages.iter().any(|p| p.name.as_str() == name && shipped.contains(&p.id));
    assert!(names.contains("insta") && !is_shipped("insta") && is_shipped("axum") && is_shipped("serde"));
}

#[test]
fn no_dependency_comes_from_elsewhere_than_the_registry_or_here() {
    let metadata = metadata();
    let members: BTreeSet<_> = metadata.workspace_members.iter().collect();
    let elsewhere = |package: &&Package| match &package.source {
        Some(source) => !source.repr.starts_with("registry+"),
        None => !members.contains(&package.id),
    };
    let names: Vec<_> = metadata.packages.iter().filter(elsewhere).map(|package| &package.name).collect();
    assert!(names.is_empty(), "{names:?}");
}

fn sources(package: &Package) -> Vec<PathBuf> {
    let root = package.manifest_path.parent().expect("a manifest is in a folder");
    let mut found = Vec::new();
    collect(root.as_std_path(), &mut found);
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a directory of ours").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn only_vtax_sys_has_unsafe_code() {
    let metadata = metadata();
    for package in metadata.workspace_packages().into_iter().filter(|package| package.name.as_str() != "vtax-sys") {
        for target in package.targets.iter().filter(|target| target.is_lib() || target.is_bin()) {
            let root = fs::read_to_string(&target.src_path).expect("a source of ours");
            // The interface of libFuzzer is compiled only by `make fuzz`.
            let forbids = match package.name.as_str() {
                "vtax-fuzz" => "#![cfg_attr(not(fuzzing), forbid(unsafe_code))]",
                _ => "#![forbid(unsafe_code)]",
            };
            assert!(root.contains(forbids), "{}", target.src_path);
        }
    }
}

/// At the limit of processes, the kernel refuses to create a thread. These calls then panic; a `Builder` returns the
/// error.
#[test]
fn a_thread_that_the_kernel_refuses_is_not_a_panic() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        let root = package.manifest_path.parent().expect("a manifest is in a folder").join("src");
        let mut files = Vec::new();
        collect(root.as_std_path(), &mut files);
        for file in files.iter().filter(|file| !file.iter().any(|part| part == "tests" || part == "tests.rs")) {
            let text = fs::read_to_string(file).expect("a source of ours");
            let product = text.split("#[cfg(test)]\nmod ").next().expect("at least one part");
            for call in ["thread::spawn(", "scope.spawn("] {
                assert!(!product.contains(call), "{} has {call}", file.display());
            }
        }
    }
}

#[test]
fn modules_have_descriptive_names() {
    let drawers = ["util", "utils", "helper", "helpers", "common", "misc"];
    let metadata = metadata();
    for path in metadata.workspace_packages().into_iter().flat_map(sources) {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        assert!(!drawers.contains(&stem), "{}", path.display());
    }
}

#[test]
fn versions_agree() {
    let metadata = metadata();
    let versions: BTreeMap<_, _> =
        metadata.workspace_packages().into_iter().map(|package| (package.version.clone(), &package.name)).collect();
    assert_eq!(versions.len(), 1, "the agent and vtax must be of one version: {versions:?}");
}
