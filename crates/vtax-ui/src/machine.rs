//! State of this machine: its domains, labs and changed settings, as the commands list them.

use std::{
    io,
    panic::resume_unwind,
    path::Path,
    process::{Command, Stdio},
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use vtax_report::html::escaped;
use vtax_sys::{deadline::output_within, inherit::die_with_parent, state};

/// Time limit of a command that lists something; it may hang, e.g. because of a disk.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a list in characters.
const LONGEST: usize = 20_000;

/// List on the start page, printed by a vtax command in a separate process, because entering a namespace would affect
/// this whole process.
struct MachineList {
    title: &'static str,
    arguments: [&'static str; 2],
}

const LISTS: [MachineList; 4] = [
    MachineList { title: "Domains", arguments: ["ldm", "list"] },
    MachineList { title: "Labs", arguments: ["lab", "list"] },
    MachineList { title: "Tuning findings", arguments: ["tune", "check"] },
    MachineList { title: "Changed settings", arguments: ["tune", "status"] },
];

/// Returns a section for each list. `program` is the vtax binary. The commands run concurrently, so several that hang
/// delay the page only once.
pub(crate) fn sections(program: &Path, state_dir: &Path) -> String {
    thread::scope(|scope| {
        let started = LISTS.each_ref().map(|list| {
            let work = move || section(list, program, state_dir);
            (list, thread::Builder::new().name(list.title.into()).spawn_scoped(scope, work))
        });
        let text = |(list, thread): (&MachineList, io::Result<ScopedJoinHandle<'_, String>>)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // Without a thread, the command runs here.
            Err(_) => section(list, program, state_dir),
        };
        started.map(text).concat()
    })
}

fn section(list: &MachineList, program: &Path, state_dir: &Path) -> String {
    let MachineList { title, arguments } = list;
    let text = printed(arguments, program, state_dir, PATIENCE).unwrap_or_else(|error| error);
    let text = escaped(&text);
    format!(
        "<section aria-label=\"{title}\">\n<h2>{title}</h2>\n\
         <pre role=\"region\" tabindex=\"0\" aria-label=\"{title}\">{text}</pre>\n</section>\n"
    )
}

/// Returns the output of a vtax command, or the reason why there is none.
pub(crate) fn printed(arguments: &[&str], program: &Path, state_dir: &Path, limit: Duration) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).env("NO_COLOR", "1");
    use_results(&mut command, state_dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    die_with_parent(&mut command);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().chars().take(LONGEST).collect::<String>();
    match output_within(&mut command, limit) {
        Ok(output) if output.status.success() => Ok(text(output.stdout)),
        Ok(output) => Err(text(output.stderr)),
        Err(error) => Err(text(error.to_string().into_bytes())),
    }
}

/// Makes a vtax command use these results. If it would find them by itself, their directory is not named: for root, a
/// named one has a journal of changed settings of its own, instead of the machine's.
pub(crate) fn use_results(command: &mut Command, state_dir: &Path) {
    if state::folder(None).as_deref() != Some(state_dir) {
        command.env("VTAX_STATE", state_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The journal of root's `vtax ui` was not that of root's other vtaxes.
    #[test]
    fn only_another_directory_is_named() {
        let names = |state_dir: &Path| {
            let mut command = Command::new("vtax");
            use_results(&mut command, state_dir);
            command.get_envs().any(|(name, _)| name == "VTAX_STATE")
        };
        assert!(names(Path::new("/no/such/results")));
        assert!(state::folder(None).is_none_or(|own| !names(&own)));
    }
}
