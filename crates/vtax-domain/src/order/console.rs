//! Users of this host, who may use consoles.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use vtax_model::domain::UserName;
use vtax_sys::{deadline::output_within, netlink::UserId};

/// Time limit for a directory service.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the ID of a user of this host, if it exists. A statically linked program cannot load the modules that read
/// users from a directory service (nsswitch.conf(5)), so this asks `getent`.
pub fn user_id(name: &UserName) -> Option<UserId> {
    let mut command = Command::new("getent");
    command.args(["passwd", "--", name.as_str()]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = output_within(&mut command, PATIENCE).ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    let mut fields = line.lines().next()?.split(':');
    (fields.next()? == name.as_str()).then(|| fields.nth(1)?.parse().ok().map(UserId)).flatten()
}
