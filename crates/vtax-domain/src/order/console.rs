//! Users of this host, who may use consoles.

use std::process::{Command, Stdio};

use vtax_model::domain::UserName;
use vtax_sys::netlink::UserId;

/// Returns the ID of a user of this host, if it exists. A statically linked program cannot load the modules that read
/// users from a directory service (nsswitch.conf(5)), so this asks `getent`.
pub fn user_id(name: &UserName) -> Option<UserId> {
    let output = Command::new("getent").args(["passwd", "--", name.as_str()]).stdin(Stdio::null()).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    let mut fields = line.lines().next()?.split(':');
    (fields.next()? == name.as_str()).then(|| fields.nth(1)?.parse().ok().map(UserId)).flatten()
}
