//! Boot of a server, the first one or a later one.
//!
//! Each boot runs a script on the state disk: it copies vtax, creates the virtual functions that the server has from
//! the start, and starts the domains that must run, as systemd's unit does on other machines. At the first boot vtax
//! runs the script, later the server's first process, before its agent answers.

use std::{sync::Arc, time::Instant};

use vtax_guest::process::Qemu;
use vtax_model::run::EmulatedServer;
use vtax_wire::{
    guest::{BOOT_SCRIPT, STATE},
    link::AgentLink,
};

use super::{
    EmulatedServerUp, SCRIPT_TIME,
    command::ServerCommand,
    programs::{PROGRAMS, ServerPrograms},
};
use crate::{
    events::RunEvents,
    labs::{connect, explain},
};

/// Shell lines that save the script from standard input.
pub(super) const KEEP: &str = r#"
mkdir -p /run/vtax-state/boot
cat >/run/vtax-state/boot/new
chmod 700 /run/vtax-state/boot/new
mv /run/vtax-state/boot/new /run/vtax-state/boot/start
"#;

/// Returns the script. With the argument `programs` it only copies the programs.
pub(super) fn script(machine: &EmulatedServer, vfs: u32, programs: &ServerPrograms) -> miette::Result<String> {
    let functions = match vfs {
        0 => String::new(),
        vfs => format!("for nic in /sys/bus/pci/devices/*/sriov_numvfs; do echo {vfs} >\"$nic\"; done\n"),
    };
    // The current directory may no longer exist by then.
    let autostart = ServerCommand::of_vtax_in("/", ["ldm", "autostart"].map(Into::into))?;
    let autostart: Vec<String> = autostart.words().iter().map(|word| quoted(word)).collect();
    Ok(format!(
        r#"#!/bin/sh
# What this server does when it boots. vtax has written this, and writes it again.
set -e
{programs}[ "$1" = programs ] && exit
cat >{file} <<'END'
{machine}
END
{functions}if [ -e {STATE}/ldm/state.json ]; then
{autostart} </dev/null >/dev/console 2>&1 &
fi
"#,
        programs = programs.script(),
        file = EmulatedServer::FILE,
        machine = serde_json::to_string(machine).expect("a machine is JSON"),
        autostart = autostart.join(" "),
    ))
}

/// Quotes a word for a shell.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Waits for the agent. A server that is booting has none yet.
pub(super) fn wait_for_link(qemu: &Qemu, events: &RunEvents) -> miette::Result<AgentLink> {
    let begun = Instant::now();
    loop {
        match connect("the emulated server", qemu) {
            Err(_) if qemu.is_alive() && begun.elapsed() < qemu.launch().patience() => {
                let seconds = begun.elapsed().as_secs();
                events.tell(format_args!("server: no response for {seconds} s; it may be rebooting"));
            }
            connected => return connected,
        }
    }
}

impl EmulatedServerUp {
    /// Saves the script and runs it, in a server that was just created.
    pub(super) fn first_boot(&self, script: &str) -> miette::Result<()> {
        self.shell("preparing itself", &format!("set -e\n{KEEP}{BOOT_SCRIPT}\n"), &[], script.as_bytes())
    }

    /// Reboots the server, and waits until its agent answers.
    pub(super) fn reboot(mut self) -> miette::Result<EmulatedServerUp> {
        let program = vec![format!("{PROGRAMS}/reboot")];
        self.link.run(&program, &[], SCRIPT_TIME).map_err(|error| explain(&self.qemu, error))?;
        self.events.tell("server: rebooting");
        // QEMU serves one link at a time. The agent that answers the next link is that of the next boot.
        drop(self.link);
        self.link = Arc::new(wait_for_link(&self.qemu, &self.events)?);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use vtax_model::guest::Accelerator;

    use super::*;

    #[test]
    fn the_script_is_valid_for_a_shell_with_any_names() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert!(KEEP.ends_with(&format!(" {BOOT_SCRIPT}\n")));
        let machine = EmulatedServer {
            spec: "emulated".into(),
            accel: Accelerator::Tcg,
            qemu: "10.0\nEND\nexit 7".into(),
            why_not_kvm: None,
        };
        let programs = ServerPrograms::find(None).expect("this program");
        let script = script(&machine, 3, &programs).expect("all is UTF-8");
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("start");
        fs::write(&file, &script).expect("ours");
        assert!(Command::new("sh").arg("-n").arg(&file).status().expect("a shell").success(), "{script}");
        assert_eq!(script.matches("\nEND\n").count(), 2, "{script}");
        assert!(script.contains("echo 3 >\"$nic\"") && script.contains("'ldm' 'autostart' </dev/null"), "{script}");
    }
}
