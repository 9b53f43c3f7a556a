//! Script that runs in the other place before the agent.

use std::ffi::OsString;
use vtax_sys::token::Token;

/// POSIX sh. The login shell, which may be any shell, receives the script as one quoted word. Newlines are therefore
/// removed, and the script contains no `'` (which ends the word), no `\` (special in fish even within quotes) and no
/// `!` (special in csh).
///
/// Each directory is tried with a copy of its own, because a mount that forbids execution is only noticed when the copy
/// is started. `head` reads all bytes of a copy even if there is no space for them; otherwise the rest would be taken
/// for the beginning of the next copy.
const TEXT: &str = r#"
if [ "$(vtax-agent --version 2>/dev/null </dev/null)" = "$v" ]; then
  echo "$m starts";
  exec vtax-agent --stdio;
fi;
umask 077;
d=;
tried=;
clean() { if [ -n "$d" ]; then rm -rf "$d"; d=; fi; };
trap clean 0;
trap "exit 1" 1 2 13 15;
for p in "$XDG_RUNTIME_DIR" /dev/shm /tmp /var/tmp "$HOME"; do
  case "$p" in /*) ;; *) continue;; esac;
  d="${p%/}/.vtax-$k";
  if mkdir -m 700 "$d" 2>/dev/null; then
    f="$d/vtax-agent";
    echo "$m wants $(uname -s) $(uname -m)";
    head -c "$n" | { cat >"$f" || cat >/dev/null; } 2>/dev/null;
    got=$(wc -c 2>/dev/null <"$f");
    if [ "${got:-0}" -eq "$n" ]; then
      chmod 700 "$f";
      if [ "$("$f" --version 2>/dev/null </dev/null)" = "$v" ]; then
        echo "$m starts";
        trap - 0 1 2 13 15;
        exec "$f" --stdio --carried;
      fi;
      why="does not run there";
    else
      why="no room";
    fi;
    clean;
  else
    d=;
    why="not writable";
  fi;
  tried="$tried $p ($why)";
done;
echo "$m noplace$tried";
"#;

/// Script for one start of an agent.
#[derive(Debug)]
pub struct CarryScript {
    version: String,
    size: usize,
    /// Random key, which no other program can print by chance.
    key: String,
}

/// Reports of the script.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScriptProgress {
    /// It starts an agent, which then waits for a greeting.
    Starts,
    /// There is no agent of this version, but a directory that may have room for one. The script waits for the bytes.
    Wants {
        /// `uname -s`.
        system: String,
        /// `uname -m`.
        machine: String,
    },
    /// No directory can be used.
    NoPlace {
        /// Each directory, and why it cannot be used.
        tried: String,
    },
}

impl CarryScript {
    /// Creates the script that finds an agent whose version line is `version`, or receives one of `size` bytes.
    pub(crate) fn new(version: &str, size: usize) -> CarryScript {
        CarryScript { version: version.to_owned(), size, key: Token::random().to_string() }
    }

    /// Returns the argument of `sh -c`.
    pub fn text(&self) -> String {
        let CarryScript { version, size, key } = self;
        let text = TEXT.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let mark = self.mark();
        format!("v=\"{version}\"; n={size}; k={key}; m={mark}; {text}")
    }

    /// Returns the command for any login shell.
    pub(crate) fn login_command(&self) -> OsString {
        format!("exec sh -c '{}'", self.text()).into()
    }

    /// Parses a line. `None` if it isn't a report of the script.
    pub(super) fn progress(&self, line: &[u8]) -> Option<ScriptProgress> {
        let line = std::str::from_utf8(line).ok()?;
        // Other output before the report may lack a newline.
        let (_, said) = line.trim_end().split_once(&self.mark())?;
        let (verb, rest) = said.strip_prefix(' ')?.split_once(' ').unwrap_or((said.trim(), ""));
        match verb {
            "starts" => Some(ScriptProgress::Starts),
            "wants" => {
                let (system, machine) = rest.split_once(' ')?;
                Some(ScriptProgress::Wants { system: system.to_owned(), machine: machine.to_owned() })
            }
            "noplace" => Some(ScriptProgress::NoPlace { tried: format!(" {rest}") }),
            _ => None,
        }
    }

    fn mark(&self) -> String {
        format!("@vtax-{}", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn any_login_shell_reads_it_as_one_word() {
        let command = CarryScript::new("vtax-agent 0.1.0 (protocol 3)", 3_000_000).login_command();
        let command = command.to_str().expect("ASCII");
        let quoted = command.strip_prefix("exec sh -c '").and_then(|rest| rest.strip_suffix('\''));
        let quoted = quoted.expect("one word");
        assert!(!quoted.contains(['\'', '\\', '!', '\n', '\r', '\t']), "{quoted}");
        assert!(quoted.is_ascii() && quoted.len() < 4096, "{} bytes", quoted.len());
    }

    #[test]
    fn lines_of_the_script_are_recognized() {
        let script = CarryScript::new("vtax-agent 1", 7);
        let mark = script.mark();
        let said = |text: &str| script.progress(text.replace('@', &mark).as_bytes());
        assert_eq!(said("@ starts\n"), Some(ScriptProgress::Starts));
        assert_eq!(said("Welcome! @ starts\n"), Some(ScriptProgress::Starts));
        let wants = ScriptProgress::Wants { system: "Linux".into(), machine: "x86_64".into() };
        assert_eq!(said("@ wants Linux x86_64\r\n"), Some(wants));
        let tried = " /tmp (no room)".to_owned();
        assert_eq!(said("@ noplace /tmp (no room)\n"), Some(ScriptProgress::NoPlace { tried }));
        for noise in ["@\n", "@ sings\n", "@ wants\n", "starts\n", "\n", ""] {
            assert_eq!(said(noise), None, "{noise}");
        }
        assert_eq!(CarryScript::new("vtax-agent 1", 7).progress(format!("{mark} starts\n").as_bytes()), None);
    }

    proptest! {
        #[test]
        fn no_line_makes_the_reader_panic(mut line: Vec<u8>, marked: bool) {
            let script = CarryScript::new("vtax-agent 1", 7);
            if marked {
                line = [script.mark().as_bytes(), &line].concat();
            }
            let _ = script.progress(&line);
        }
    }
}
