//! Check that the committed library is the one that the script builds.

use std::{fs, path::Path};

use serde_json::Value;

use crate::engine::VegaEngine;

fn json(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    serde_json::from_str(&fs::read_to_string(path).expect("a file of ours")).expect("JSON")
}

#[test]
fn the_bundle_has_the_pinned_versions() {
    let bundled: Value = serde_json::from_str(&VegaEngine::load().expect("loads").versions()).expect("JSON");
    let (pinned, locked) = (json("js/package.json"), json("js/package-lock.json"));
    assert_eq!(pinned["dependencies"], bundled);
    for (name, version) in bundled.as_object().expect("versions") {
        assert_eq!(locked["packages"][format!("node_modules/{name}")]["version"], *version, "{name}");
    }
}

#[test]
fn no_registry_is_named() {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("js/package-lock.json")).expect("a lock");
    assert!(!lock.contains("\"resolved\""));
}

#[test]
fn each_bundled_package_has_its_licence() {
    let licences = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("LICENCES.txt")).expect("licences");
    for name in ["vega 6", "vega-lite 6", "vega-interpreter 2", "vega-scenegraph ", "d3-scale 4", "inter-ui 4"] {
        assert!(licences.lines().any(|line| line.starts_with(name)), "{name}");
    }
    assert!(crate::PAGE_SCRIPT.contains("Redistribution and use"));
}
