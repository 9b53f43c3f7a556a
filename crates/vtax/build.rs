//! Links the program of debug builds at fixed addresses.
//!
//! A static program that may run at any address adjusts each of its pointers when it starts, and so copies most pages of
//! its data. A debug build has so many that this takes longer than a short command, and tests start it thousands of
//! times. Released programs keep random addresses.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found.split(',').any(|it| it == value));
    // musl's start-up code is chosen by rustc itself.
    let is_static = is("CARGO_CFG_TARGET_ENV", "gnu") && is("CARGO_CFG_TARGET_FEATURE", "crt-static");
    if is("PROFILE", "debug") && is_static {
        println!("cargo::rustc-link-arg-bin=vtax=-no-pie");
        println!("cargo::rustc-link-arg-bin=vtax=-static");
    }
}
