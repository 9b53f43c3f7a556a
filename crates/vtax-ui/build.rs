//! Computes the hash of the live page's script, by which the page's policy allows it.

use std::{env, fs, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

fn main() {
    let script = "src/live.js";
    println!("cargo::rerun-if-changed={script}");
    let text = fs::read(script).expect("the script is in the repository");
    let hash = format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)));
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("live.js.sha256"), hash).expect("cargo's folder can be written");
}
