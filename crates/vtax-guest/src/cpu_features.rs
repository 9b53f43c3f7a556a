//! CPU features that guests see, as QEMU reports them (`query-cpu-model-expansion`).

use std::{
    collections::BTreeSet,
    io::{Write, pipe},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use vtax_model::{foreign::ForeignText, guest::Accelerator};
use vtax_sys::deadline::output_within;

use crate::{
    error::{GuestError, MissingForGuests},
    launch::QemuProgram,
    qmp::{Monitor, PATIENCE},
};

/// Time limit for starting QEMU without a machine, which takes a tenth of a second.
const START: Duration = Duration::from_secs(20);
const EXPANSION: &str = "query-cpu-model-expansion";

/// Answer to [`EXPANSION`].
#[derive(Deserialize)]
struct Expansion {
    model: ExpandedModel,
}

#[derive(Deserialize)]
struct ExpandedModel {
    props: Map<String, Value>,
}

/// Answer to `query-migrate`; only the reasons against a migration are used.
#[derive(Deserialize)]
struct MigrationInfo {
    #[serde(rename = "blocked-reasons", default)]
    blocked: Vec<ForeignText>,
}

/// Returns the model that guests of vtax have.
fn model(accel: Accelerator) -> Value {
    let name = match accel {
        Accelerator::Kvm => "host",
        Accelerator::Tcg => "max",
    };
    json!({ "type": "full", "model": { "name": name } })
}

/// The enabled properties of a model. Those that begin with `x-` are internal to QEMU.
fn enabled(expansion: Expansion) -> BTreeSet<ForeignText> {
    let is_on = |(name, value): &(String, Value)| *value == Value::Bool(true) && !name.starts_with("x-");
    expansion.model.props.into_iter().filter(is_on).map(|(name, _)| name.into()).collect()
}

impl Monitor {
    /// Returns the CPU features visible to the guest.
    pub fn cpu_features(&mut self, accel: Accelerator) -> Result<BTreeSet<ForeignText>, GuestError> {
        self.ask(EXPANSION, model(accel), Instant::now() + PATIENCE).map(enabled)
    }

    /// Returns QEMU's reasons against a migration of the guest in its current state.
    pub fn migration_blockers(&mut self) -> Result<Vec<ForeignText>, GuestError> {
        Ok(self.query::<MigrationInfo>("query-migrate")?.blocked)
    }
}

impl QemuProgram {
    /// Returns the CPU features that guests on this machine would have. Starts QEMU without a machine for it.
    pub fn cpu_features(&self, accel: Accelerator) -> Result<BTreeSet<ForeignText>, GuestError> {
        let accelerator = match accel {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        };
        let mut command = Command::new(&self.path);
        command.args(["-machine", "none", "-nodefaults", "-display", "none", "-qmp", "stdio", "-accel", accelerator]);
        let requests = [
            json!({ "execute": "qmp_capabilities" }),
            json!({ "execute": EXPANSION, "arguments": model(accel), "id": 1 }),
            json!({ "execute": "quit" }),
        ];
        let text: String = requests.iter().map(|request| format!("{request}\n")).collect();
        let fail = |why: String| GuestError::from(MissingForGuests::Qemu { path: self.path.clone(), why: why.into() });
        // The pipe's buffer is large enough for everything.
        let (reader, mut writer) = pipe().map_err(|error| fail(error.to_string()))?;
        writer.write_all(text.as_bytes()).map_err(|error| fail(error.to_string()))?;
        drop(writer);
        command.stdin(Stdio::from(reader)).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = output_within(&mut command, START);
        let output = output.map_err(|_| fail(format!("does not answer `{EXPANSION}` within {START:?}")))?;
        features(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| fail(format!("does not report the features of its CPUs (`{EXPANSION}`)")))
    }
}

/// Reads the features from a monitor's output.
fn features(lines: &str) -> Option<BTreeSet<ForeignText>> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "return")]
        answer: Expansion,
    }
    lines.lines().find_map(|line| serde_json::from_str::<Answer>(line).ok()).map(|answer| enabled(answer.answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_enabled_features_count() {
        let lines = r#"{"QMP": {"version": {}}}
{"return": {}}
{"return": {"model": {"name": "max", "props": {"aes": true, "avx512f": false, "level": 13, "x-l1-cache": true}}}, "id": 1}
{"return": {}}"#;
        assert_eq!(features(lines), Some(BTreeSet::from(["aes".into()])));
        assert_eq!(features("{\"return\": {}}\nnoise"), None);
    }

    #[test]
    fn a_qemu_without_blockers_omits_them() {
        let blocked = |text| serde_json::from_str::<MigrationInfo>(text).expect("an answer").blocked;
        assert!(blocked("{}").is_empty());
        assert_eq!(blocked(r#"{"blocked-reasons": ["VirtFS"], "blocked": true}"#), ["VirtFS"]);
    }
}
