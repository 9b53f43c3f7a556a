//! Finds the agent's program on this machine.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use vtax_model::method::Unsupported;

/// The environment variable that names the agent's program.
pub const VARIABLE: &str = "VTAX_AGENT";

const PROGRAM: &str = "vtax-agent";

/// No agent program was found.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[error("{unsupported}")]
#[diagnostic(code("no-agent-program"))]
pub struct LocateError {
    /// True if the user named the program. No other program is tried then.
    pub named: bool,
    /// The error and the remedy, as separate texts.
    pub unsupported: Unsupported,
}

impl LocateError {
    fn named(origin: &str, path: &Path, why: &Unusable) -> LocateError {
        let why = format!("{origin} names {}, which {why}", path.display());
        LocateError { named: true, unsupported: Unsupported::new(why, "specify the vtax-agent of the same build") }
    }

    fn nowhere(looked: &[PathBuf]) -> LocateError {
        let why = format!("cannot find the program {PROGRAM}; looked for {}", listed(looked));
        let remedy = format!("build it (cargo build -p vtax-agent) or set {VARIABLE} to its path");
        LocateError { named: false, unsupported: Unsupported::new(why, remedy) }
    }
}

/// The reason why a file isn't usable as the program.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("cannot be read ({0})")]
    Unreadable(#[from] io::Error),
    #[error("is not a file")]
    NoFile,
    #[error("is not executable (chmod +x)")]
    NotExecutable,
}

/// Finds the agent's program: `named` (by an option, for example), or the value of [`VARIABLE`], or a file next to the
/// running program, or one in `../libexec/vtax` relative to it.
pub fn agent_program(named: Option<&Path>) -> Result<PathBuf, LocateError> {
    let variable = env::var_os(VARIABLE).map(PathBuf::from);
    let running = env::current_exe().ok();
    search(named, variable.as_deref(), running.as_deref().and_then(Path::parent))
}

fn search(named: Option<&Path>, variable: Option<&Path>, beside: Option<&Path>) -> Result<PathBuf, LocateError> {
    let said = named.map(|path| ("--agent", path)).or(variable.map(|path| (VARIABLE, path)));
    if let Some((origin, path)) = said {
        return match usable(path) {
            Ok(()) => Ok(path.to_owned()),
            Err(why) => Err(LocateError::named(origin, path, &why)),
        };
    }
    let places = beside.map(|beside| [beside.join(PROGRAM), beside.join("../libexec/vtax").join(PROGRAM)]);
    let looked: Vec<_> = places.into_iter().flatten().collect();
    let found = looked.iter().find(|path| usable(path).is_ok()).cloned();
    found.ok_or_else(|| LocateError::nowhere(&looked))
}

fn usable(path: &Path) -> Result<(), Unusable> {
    let facts = fs::metadata(path)?;
    match (facts.is_file(), facts.permissions().mode() & 0o111) {
        (false, _) => Err(Unusable::NoFile),
        (true, 0) => Err(Unusable::NotExecutable),
        (true, _) => Ok(()),
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().expect("in a directory")).expect("made");
        fs::write(path, "#!/bin/true\n").expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn the_usual_places_are_searched_in_order() {
        let tree = tempfile::tempdir().expect("made");
        let bin = tree.path().join("bin");
        fs::create_dir(&bin).expect("made");
        let [beside, libexec] = [bin.join(PROGRAM), bin.join("../libexec/vtax").join(PROGRAM)];
        let nowhere = search(None, None, Some(&bin)).expect_err("nothing is there").to_string();
        assert!(nowhere.contains(&listed(&[beside.clone(), libexec.clone()])), "{nowhere}");
        program(&tree.path().join("libexec/vtax").join(PROGRAM), 0o755);
        assert_eq!(search(None, None, Some(&bin)).expect("found"), libexec);
        program(&beside, 0o755);
        assert_eq!(search(None, None, Some(&bin)).expect("found"), beside);
    }

    #[test]
    fn a_named_agent_isnt_replaced_by_another() {
        let tree = tempfile::tempdir().expect("made");
        let beside = tree.path().join(PROGRAM);
        program(&beside, 0o755);
        let named = tree.path().join("gone");
        let error = search(Some(&named), Some(&beside), Some(tree.path())).expect_err("gone");
        assert!(error.named && error.to_string().contains("cannot be read"), "{error}");
        assert!(error.to_string().starts_with("--agent names"), "{error}");
        assert_eq!(search(None, Some(&beside), None).expect("there"), beside);
    }

    #[test]
    fn a_file_that_cannot_be_started_is_reported() {
        let tree = tempfile::tempdir().expect("made");
        let file = tree.path().join("file");
        program(&file, 0o644);
        let why = |path: &Path| search(None, Some(path), None).expect_err("unusable").to_string();
        assert!(why(&file).contains("VTAX_AGENT names") && why(&file).contains("chmod +x"), "{}", why(&file));
        assert!(why(tree.path()).contains("is not a file"));
        let nowhere = search(None, None, Some(tree.path())).expect_err("nothing there").to_string();
        assert!(nowhere.contains("libexec/vtax/vtax-agent") && nowhere.contains("VTAX_AGENT"), "{nowhere}");
    }
}
