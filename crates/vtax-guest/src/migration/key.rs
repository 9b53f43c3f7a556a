//! The key that encrypts a migration.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
    str::FromStr,
};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Uid, fchown, openat, renameat, unlinkat},
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::{
    error::GuestError,
    launch::Launch,
    qmp::{Monitor, TlsEndpoint},
};

const KEY_LEN: usize = 32;
/// The name that QEMU requires.
const FILE: &str = "keys.psk";
/// The name that QEMU requires for Diffie-Hellman parameters. Without this file a server generates new ones, which
/// takes seconds, during which its monitor doesn't respond.
const DH_FILE: &str = "dh-params.pem";
/// The group ffdhe2048 (RFC 7919, appendix A.1), which is public.
const DH_PARAMETERS: &str = include_str!("dh-params.pem");
/// The user name under which QEMU looks up the key.
const USER: &str = "qemu";
/// QEMU's working directory, which is the guest's directory.
const DIRECTORY: &str = ".";
/// The name of the key in QEMU.
pub(super) const KEY_ID: &str = "migration-key";
/// The name of the same key for disks, which connect earlier.
pub(super) const DISK_KEY_ID: &str = "migration-disk-key";

/// 256 random bits shared by both ends of a migration. They are sent over the control connection. `Debug` doesn't print
/// them, so they cannot get into a log by accident.
#[derive(Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct MigrationKey([u8; KEY_LEN]);

impl MigrationKey {
    /// Returns a new key from the kernel's random number generator.
    pub fn random() -> MigrationKey {
        let mut bytes = [0; KEY_LEN];
        getrandom(&mut bytes, GetRandomFlags::empty())
            .expect("getrandom of 32 bytes neither fails nor falls short once it is seeded (getrandom(2))");
        MigrationKey(bytes)
    }
}

/// Prints the secret itself as 64 hexadecimal digits: for the control connection, not for messages.
impl fmt::Display for MigrationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MigrationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MigrationKey(secret)")
    }
}

/// A text that is not a key. The error doesn't repeat the text, which may be almost a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
#[error("invalid migration key: 64 hexadecimal digits required")]
#[diagnostic(code("bad-migration-key"))]
pub struct MigrationKeyError;

impl FromStr for MigrationKey {
    type Err = MigrationKeyError;

    fn from_str(text: &str) -> Result<MigrationKey, MigrationKeyError> {
        let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let digits: Option<Vec<u8>> = text.as_bytes().iter().map(digit).collect();
        let digits = digits.filter(|digits| digits.len() == 2 * KEY_LEN).ok_or(MigrationKeyError)?;
        let mut bytes = [0; KEY_LEN];
        bytes.iter_mut().zip(digits.chunks_exact(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
        Ok(MigrationKey(bytes))
    }
}

/// The files with the key and the Diffie-Hellman parameters in a guest's directory, which only QEMU's user can read.
/// They are removed when this value is dropped, unless they are kept.
#[derive(Debug)]
pub(super) struct KeyFile {
    folder: OwnedFd,
    is_kept: bool,
}

impl KeyFile {
    /// The directory belongs to QEMU's user, which is not trusted: nothing that it may have put there is followed or
    /// used. QEMU may still be reading the file of an existing key.
    fn create(directory: &Path, key: &MigrationKey) -> Result<KeyFile, GuestError> {
        let path = directory.join(FILE);
        let folder = File::open(directory).map_err(GuestError::file("open", directory))?;
        let owner = folder.metadata().map_err(GuestError::file("read", directory))?;
        let file = KeyFile { folder: folder.into(), is_kept: false };
        file.write(key, owner.uid(), owner.gid()).map_err(GuestError::file("create", &path))?;
        Ok(file)
    }

    fn write(&self, key: &MigrationKey, uid: u32, gid: u32) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for (name, text) in [(DH_FILE, DH_PARAMETERS), (FILE, &format!("{USER}:{key}\n"))] {
            let draft = format!("{name}.new");
            self.remove(&draft)?;
            let mut file = File::from(openat(&self.folder, &draft, flags, Mode::RUSR | Mode::WUSR)?);
            file.write_all(text.as_bytes())?;
            fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            renameat(&self.folder, &draft, &self.folder, name)?;
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Keeps the files: QEMU reads them at later handshakes. They are removed with the guest's directory, or replaced
    /// by the next files of this kind.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        // The file system is removed with the guest, and the key is for one migration only.
        if !self.is_kept {
            let _ = self.remove(FILE).and(self.remove(DH_FILE));
        }
    }
}

/// Adds the key to QEMU under this name, if there is one. The file must exist until the handshake is complete.
pub(super) fn give_key(
    monitor: &mut Monitor,
    launch: &Launch,
    key: Option<&MigrationKey>,
    (id, endpoint): (&str, TlsEndpoint),
) -> Result<Option<KeyFile>, GuestError> {
    let Some(key) = key else { return Ok(None) };
    let file = KeyFile::create(&launch.directory, key)?;
    // An attempt whose vtax was killed may have left one.
    match monitor.remove_object(id) {
        Ok(()) | Err(GuestError::Refused { .. }) => {}
        Err(error) => return Err(error),
    }
    monitor.add_tls_key(id, endpoint, DIRECTORY)?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn a_key_survives_its_text_and_is_not_in_a_log() {
        let key = MigrationKey::random();
        let text = key.to_string();
        assert_eq!((text.len(), text.parse()), (64, Ok(key.clone())));
        assert_ne!(MigrationKey::random(), key);
        assert_eq!(format!("{key:?}"), "MigrationKey(secret)");
        for wrong in ["", &text[1..], &text.replace(&text[..1], "g"), &format!("{text}0"), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<MigrationKey>(), Err(MigrationKeyError));
        }
    }

    #[test]
    fn the_file_is_private_and_removed_with_the_value() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        let key = MigrationKey::random();
        let file = KeyFile::create(folder.path(), &key).expect("ours");
        assert_eq!(fs::read_to_string(&path).expect("ours"), format!("qemu:{key}\n"));
        assert_eq!(fs::metadata(&path).expect("ours").permissions().mode() & 0o777, 0o600);
        // QEMU may read it at any time.
        let again = KeyFile::create(folder.path(), &key).expect("ours");
        assert_eq!(fs::read_to_string(&path).expect("ours"), format!("qemu:{key}\n"));
        again.keep();
        assert!(path.exists());
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).expect("ours").count(), 0);
    }

    #[test]
    fn files_planted_by_a_guest_are_neither_followed_nor_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        fs::write(&victim, "kept").expect("ours");
        symlink(&victim, folder.path().join(FILE)).expect("ours");
        let file = KeyFile::create(folder.path(), &MigrationKey::random()).expect("ours");
        assert_eq!(fs::read_to_string(&victim).expect("ours"), "kept");
        assert!(fs::symlink_metadata(folder.path().join(FILE)).expect("ours").is_file());
        drop(file);
    }

    #[test]
    fn fuzz_migration_key() {
        vtax_fuzz::fuzz_text("migration-key", &[MigrationKey([7; KEY_LEN]).to_string()], |text| {
            let key: MigrationKey = text.parse().ok()?;
            assert_eq!(key.to_string(), text.to_ascii_lowercase());
            Some(())
        });
    }
}
