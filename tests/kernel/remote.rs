//! An agent on another host, by a real ssh to a real sshd: from one host of a lab to the other.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use super::{Bench, bench::wait_until, json};

const LAB: &str = r#"
[lab]
name = "t-ssh"
[[host]]
name = "near"
[[host]]
name = "far"
[[wire]]
name = "w"
ends = ["near", "far"]
"#;

/// The lab, and sshd on its far host; both go with the value.
struct Far<'a> {
    bench: &'a Bench,
    sshd: Option<Child>,
}

impl Drop for Far<'_> {
    fn drop(&mut self) {
        if let Some(sshd) = &mut self.sshd {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
        // sshd gives its sessions an environment of their own: they are no processes of the lab,
        // which then waits, as it should, until the last of them has noticed that sshd is gone.
        wait_until("the lab is taken down", || self.bench.vtax(&["lab", "down", "t-ssh"]).status.success());
    }
}

/// The far host's address in the lab that was built: another lab may take a range that was only
/// planned.
fn address(built: &serde_json::Value) -> String {
    let endpoints = built["endpoints"].as_array().expect("endpoints");
    let far = endpoints.iter().find(|endpoint| endpoint["name"] == "far").expect("the far host");
    far["address"].as_str().expect("an address").to_owned()
}

fn key(folder: &Path, name: &str) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
    assert!(command.status().expect("ssh-keygen runs").success());
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

fn configure(folder: &Path, address: &str, agent_folder: &str) {
    let at = folder.display();
    key(folder, "host_key");
    key(folder, "user_key");
    fs::copy(folder.join("user_key.pub"), folder.join("authorized")).expect("a key");
    let server = format!(
        "Port 2222\nListenAddress {address}\nHostKey {at}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n\
         PermitRootLogin prohibit-password\nAuthorizedKeysFile {at}/authorized\nSetEnv PATH={agent_folder}:/usr/bin:/bin\n"
    );
    fs::write(folder.join("sshd_config"), server).expect("a file");
    let client = format!(
        "Host far\n HostName {address}\n Port 2222\n User root\n IdentityFile {at}/user_key\n IdentitiesOnly yes\n \
         StrictHostKeyChecking no\n UserKnownHostsFile {at}/known\n LogLevel ERROR\n"
    );
    fs::write(folder.join("ssh_config"), client).expect("a file");
    fs::create_dir(folder.join("bin")).expect("a folder");
    // ssh reads the configuration in the home that the password file names, which is not ours.
    write_program(&folder.join("bin/ssh"), &format!("#!/bin/sh\nexec /usr/bin/ssh -F {at}/ssh_config \"$@\"\n"));
}

fn start<'a>(bench: &'a Bench) -> Far<'a> {
    let folder = bench.path();
    let programs = Path::new(env!("CARGO_BIN_EXE_vtax")).parent().expect("a folder");
    let built = json(bench, &["lab", "up", "lab.toml", "--json"]);
    let mut far = Far { bench, sshd: None };
    configure(folder, &address(&built), programs.to_str().expect("text"));
    // As its service does: sshd asks for this folder before it drops privilege.
    fs::create_dir_all("/run/sshd").expect("we are root");
    let config = folder.join("sshd_config");
    let sshd =
        ["lab", "exec", "t-ssh", "far", "--", "/usr/sbin/sshd", "-D", "-e", "-f", config.to_str().expect("text")];
    far.sshd = Some(bench.command(&sshd).stderr(Stdio::null()).spawn().expect("vtax runs"));
    far
}

/// `vtax agent probe` on the near host.
fn probe(bench: &Bench, host: &str, json: bool) -> std::process::Output {
    let path = format!("PATH={}/bin:/usr/bin:/bin", bench.path().display());
    let mut arguments = vec!["lab", "exec", "t-ssh", "near", "--", "env", &path, env!("CARGO_BIN_EXE_vtax")];
    arguments.extend(["agent", "probe", host]);
    arguments.extend(json.then_some("--json"));
    bench.vtax(&arguments)
}

#[test]
fn an_agent_answers_from_another_host() {
    let bench = Bench::with("lab.toml", LAB);
    let _far = start(&bench);
    wait_until("sshd answers", || probe(&bench, "ssh:far", true).status.success());
    let output = probe(&bench, "ssh:far", true);
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    assert!(facts["kernel"].is_string());
    let nowhere = probe(&bench, "ssh:nowhere.invalid", false);
    let told = String::from_utf8_lossy(&nowhere.stderr);
    assert_eq!(nowhere.status.code(), Some(69), "{told}");
    assert!(told.contains("nowhere.invalid"), "{told}");
}
