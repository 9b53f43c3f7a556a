//! Installation below a directory, and as a Debian package that is installed, used and removed. Everything is in a
//! directory of the test, which has its own package database.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// Returns the root of the repository.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(super) fn vtax() -> &'static str {
    env!("CARGO_BIN_EXE_vtax")
}

/// Returns the agent under test.
pub(super) fn agent() -> PathBuf {
    std::env::var_os("VTAX_AGENT").map_or_else(|| Path::new(vtax()).with_file_name("vtax-agent"), PathBuf::from)
}

/// Runs a program, which must succeed, and returns its output.
fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns every file below a directory, by its relative path.
fn files(folder: &Path) -> BTreeSet<String> {
    let list = printed(Command::new("find").arg(folder).args(["-type", "f", "-printf", "%P\\n"]));
    list.lines().map(str::to_owned).collect()
}

/// Measures with the vtax that is installed below `usr`, as a user would, in a separate directory.
fn measures(usr: &Path) {
    let state = TempDir::new().expect("a directory");
    let mut command = Command::new(usr.join("bin/vtax"));
    command.env_remove("VTAX_AGENT").arg("--state").arg(state.path());
    command.args(["measure", "--samples", "2", "--duration", "50ms", "--format", "csv"]);
    let csv = printed(&mut command);
    assert!(csv.lines().count() == 2 && !csv.contains('\\'), "{csv}");
}

#[test]
fn an_installation_is_complete_and_works() {
    let folder = TempDir::new().expect("a directory");
    let usr = folder.path().join("local");
    printed(Command::new("sh").arg(root().join("scripts/install.sh")).args([vtax().as_ref(), agent().as_path(), &usr]));
    let files = files(&usr);
    for file in [
        "bin/vtax",
        "bin/vtax-agent",
        "lib/systemd/system/vtax-domains.service",
        "share/bash-completion/completions/vtax",
        "share/doc/vtax/LICENCES.txt",
        "share/doc/vtax/LICENSE-MIT",
        "share/fish/vendor_completions.d/vtax.fish",
        "share/man/man1/vtax-results-trend.1",
        "share/man/man1/vtax.1",
        "share/zsh/site-functions/_vtax",
    ] {
        assert!(files.contains(file), "{file} is missing: {files:#?}");
    }
    let ldm = Command::new(usr.join("libexec/vtax/ldm")).arg("--help").output().expect("it leads to vtax");
    assert!(String::from_utf8_lossy(&ldm.stdout).contains("Usage: ldm "), "{ldm:?}");
    // The completions must be valid for the shell.
    printed(
        Command::new("bash").args(["-n", &usr.join("share/bash-completion/completions/vtax").display().to_string()]),
    );
    measures(&usr);
}

#[test]
fn a_debian_package_is_installed_used_and_removed() {
    let folder = TempDir::new().expect("a directory");
    let script = root().join("scripts/deb.sh");
    let mut make = Command::new("sh");
    // The programs under test are many times as large as released ones, so compressing them would take long.
    make.arg(script).args([vtax().as_ref(), agent().as_path(), folder.path()]).env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    let made = printed(&mut make);
    let package = made.trim_end();
    let field = |name: &str| printed(Command::new("dpkg-deb").args(["--field", package, name]));
    assert_eq!(field("Depends").trim_end(), "", "the programs are static");
    assert_eq!(field("Version").trim_end(), env!("CARGO_PKG_VERSION"));

    let target = folder.path().join("machine");
    for kept in ["info", "updates"] {
        fs::create_dir_all(target.join("var/lib/dpkg").join(kept)).expect("a directory");
    }
    for list in ["status", "available"] {
        fs::write(target.join("var/lib/dpkg").join(list), "").expect("a list");
    }
    let before = files(&target);
    let dpkg = |words: &[&str]| printed(Command::new("dpkg").arg(format!("--root={}", target.display())).args(words));
    dpkg(&["--install", package]);
    let usr = target.join("usr");
    let installed = files(&usr);
    for file in ["share/man/man1/vtax.1.gz", "share/doc/vtax/copyright", "share/doc/vtax/changelog.gz"] {
        assert!(installed.contains(file), "{file} is missing: {installed:#?}");
    }
    // The mode of a symbolic link has no meaning.
    let owned = printed(
        Command::new("find")
            .arg(&usr)
            .args(["-not", "-type", "l", "(", "-not", "-uid", "0", "-or", "-perm", "/022", ")"]),
    );
    assert_eq!(owned, "", "nobody but root may change them");
    measures(&usr);
    dpkg(&["--purge", "vtax"]);
    let left: Vec<String> = files(&target).into_iter().filter(|file| !before.contains(file)).collect();
    let foreign: Vec<&String> = left.iter().filter(|file| !file.starts_with("var/l")).collect();
    assert!(foreign.is_empty() && !usr.join("bin").exists(), "{left:?}");
}
