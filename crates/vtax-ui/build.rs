//! Computes the hash of each script, by which the policy of its page allows it.

use std::{env, fs, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

fn main() {
    let out = env::var("OUT_DIR").expect("cargo sets it");
    for script in ["live.js", "started.js"] {
        let source = Path::new("src").join(script);
        println!("cargo::rerun-if-changed={}", source.display());
        let text = fs::read(source).expect("the script is in the repository");
        let hash = format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)));
        fs::write(Path::new(&out).join(format!("{script}.sha256")), hash).expect("cargo's folder can be written");
    }
}
