//! Where the agent's program is on this machine.

use std::{
    env, fmt, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use vtax_model::method::Unsupported;

/// The variable that names the agent's program.
pub const VARIABLE: &str = "VTAX_AGENT";

const PROGRAM: &str = "vtax-agent";

/// No agent to start.
#[derive(Debug)]
pub enum LocateError {
    /// The user has said where it is, and it isn't. Another one isn't taken in its place.
    Named {
        /// The option or the variable that named it.
        origin: &'static str,
        /// What was named.
        path: PathBuf,
        /// What is wrong with it.
        why: Unusable,
    },
    /// Not in any of the usual places.
    Nowhere {
        /// The usual places.
        looked: Vec<PathBuf>,
    },
}

impl LocateError {
    /// What is wrong, and what the user can do, each by itself.
    pub fn unsupported(&self) -> Unsupported {
        match self {
            LocateError::Named { origin, path, why } => Unsupported::new(
                format!("{origin} names {}, which {why}", path.display()),
                "name the program vtax-agent of the same build",
            ),
            LocateError::Nowhere { looked } => Unsupported::new(
                format!("the program {PROGRAM} isn't there; looked for {}", listed(looked)),
                format!("build it (cargo build -p vtax-agent) or name it in {VARIABLE}"),
            ),
        }
    }
}

impl fmt::Display for LocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.unsupported().fmt(f)
    }
}

impl std::error::Error for LocateError {}

impl miette::Diagnostic for LocateError {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new("no-agent"))
    }
}

/// Why a file can't be started.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unusable {
    #[error("can't be read ({0})")]
    Unreadable(#[from] io::Error),
    #[error("is no file")]
    NoFile,
    #[error("is not executable (chmod +x)")]
    NotExecutable,
}

/// The agent's program: as `named` (by an option, say), or as [`VARIABLE`] has it, or beside
/// the running program, or in `../libexec/vtax` from there.
pub fn agent_program(named: Option<&Path>) -> Result<PathBuf, LocateError> {
    let variable = env::var_os(VARIABLE).map(PathBuf::from);
    let running = env::current_exe().ok();
    search(named, variable.as_deref(), running.as_deref().and_then(Path::parent))
}

fn search(named: Option<&Path>, variable: Option<&Path>, beside: Option<&Path>) -> Result<PathBuf, LocateError> {
    let said = named.map(|path| ("--agent", path)).or(variable.map(|path| (VARIABLE, path)));
    if let Some((origin, path)) = said {
        let path = path.to_owned();
        return match usable(&path) {
            Ok(()) => Ok(path),
            Err(why) => Err(LocateError::Named { origin, path, why }),
        };
    }
    let places = beside.map(|beside| [beside.join(PROGRAM), beside.join("../libexec/vtax").join(PROGRAM)]);
    let looked: Vec<_> = places.into_iter().flatten().collect();
    let found = looked.iter().find(|path| usable(path).is_ok()).cloned();
    found.ok_or(LocateError::Nowhere { looked })
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
        let Err(LocateError::Nowhere { looked }) = search(None, None, Some(&bin)) else {
            panic!("found where nothing is");
        };
        assert_eq!(looked, [beside.clone(), libexec.clone()]);
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
        assert!(matches!(error, LocateError::Named { why: Unusable::Unreadable(_), .. }));
        assert!(error.to_string().starts_with("--agent names"), "{error}");
        assert_eq!(search(None, Some(&beside), None).expect("there"), beside);
    }

    #[test]
    fn what_cant_be_started_is_said() {
        let tree = tempfile::tempdir().expect("made");
        let file = tree.path().join("file");
        program(&file, 0o644);
        let why = |path: &Path| search(None, Some(path), None).expect_err("unusable").to_string();
        assert!(why(&file).contains("VTAX_AGENT names") && why(&file).contains("chmod +x"), "{}", why(&file));
        assert!(why(tree.path()).contains("is no file"));
        let nowhere = search(None, None, Some(tree.path())).expect_err("nothing there").to_string();
        assert!(nowhere.contains("libexec/vtax/vtax-agent") && nowhere.contains("VTAX_AGENT"), "{nowhere}");
    }
}
