//! The name under which the program was called: called as `ldm`, through a symbolic link, it is `vtax ldm`.
//!
//! Scripts written for Oracle's `ldm` work unchanged. Messages to such a user say `ldm`, too.

use std::{borrow::Cow, env, ffi::OsString, path::Path};

const PROGRAM: &str = "vtax";
const LDM: &str = "ldm";

/// Returns the name for messages.
pub(crate) fn program() -> &'static str {
    env::args_os().next().map_or(PROGRAM, |called| name_of(&called))
}

fn name_of(called: &OsString) -> &'static str {
    let is_ldm = Path::new(called).file_name().is_some_and(|name| name == LDM);
    if is_ldm { LDM } else { PROGRAM }
}

/// Returns the words of the command line as of a program that is called vtax: `ldm list` is `vtax ldm list`.
pub(crate) fn words() -> Vec<OsString> {
    as_vtax(env::args_os())
}

fn as_vtax(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.first().is_some_and(|called| name_of(called) == LDM) {
        words.splice(..1, [PROGRAM.into(), LDM.into()]);
    }
    words
}

/// Returns a text with the commands of `vtax ldm` as the user calls them.
pub(crate) fn as_called(text: &str) -> Cow<'_, str> {
    in_words_of(program(), text)
}

fn in_words_of<'a>(program: &str, text: &'a str) -> Cow<'a, str> {
    match program {
        LDM => Cow::Owned(text.replace("vtax ldm", LDM)),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Vec<OsString> {
        as_vtax(words.iter().map(OsString::from))
    }

    #[test]
    fn the_file_s_name_decides() {
        for ldm in ["ldm", "/usr/libexec/vtax/ldm", "./ldm"] {
            assert_eq!(read(&[ldm, "list", "-l"]), ["vtax", "ldm", "list", "-l"], "{ldm}");
            assert_eq!(name_of(&ldm.into()), "ldm");
        }
        for vtax in ["vtax", "/opt/ldm/vtax", "ldm2", ""] {
            assert_eq!(read(&[vtax, "list"]), [vtax, "list"]);
            assert_eq!(name_of(&vtax.into()), "vtax");
        }
        assert!(read(&[]).is_empty());
    }

    #[test]
    fn a_user_of_ldm_reads_of_ldm() {
        let text = "bind it first (vtax ldm bind); see vtax explain";
        assert_eq!(in_words_of("ldm", text), "bind it first (ldm bind); see vtax explain");
        assert_eq!(in_words_of("vtax", text), text);
    }
}
