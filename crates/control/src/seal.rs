//! Encryption of secrets at rest: XChaCha20-Poly1305 under a key that lies beside the store, in `secrets.key`.
//!
//! Whoever has the database alone, such as a backup of it, reads no secret.

use crate::{keyfile, random};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::io;
use std::path::Path;

/// Name of the key file in the data directory.
pub(crate) const KEY_FILE: &str = "secrets.key";
/// Marks the format of a sealed text.
const FORMAT: &str = "x1.";
/// Bytes of a nonce.
const NONCE_LEN: usize = 24;

/// Seals and opens secrets, and makes keyed fingerprints.
pub(crate) struct Sealer {
    cipher: XChaCha20Poly1305,
    key: [u8; 32],
}

/// A sealed text cannot be opened: other key, other owner, or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stored secrets cannot be opened with the key in {KEY_FILE}")]
pub(crate) struct NotOpened;

impl Sealer {
    /// With the key in `data_dir`, made there on first use.
    pub(crate) fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(KEY_FILE);
        if let Some(content) = keyfile::read(&path)? {
            let key = <[u8; 32]>::try_from(content.as_slice());
            let damaged = |_| io::Error::new(io::ErrorKind::InvalidData, format!("{KEY_FILE} must be 32 bytes"));
            return key.map(Self::new).map_err(damaged);
        }
        let key = random::bytes()?;
        keyfile::write(&path, &key)?;
        Ok(Self::new(key))
    }

    fn new(key: [u8; 32]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(Key::from_slice(&key)), key }
    }

    /// Seals `plain` for `owner`; it opens for the same owner only.
    pub(crate) fn seal(&self, owner: &str, plain: &[u8]) -> io::Result<String> {
        let nonce = random::bytes::<NONCE_LEN>()?;
        let payload = Payload { msg: plain, aad: owner.as_bytes() };
        let sealed =
            self.cipher.encrypt(XNonce::from_slice(&nonce), payload).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok(format!("{FORMAT}{}", STANDARD_NO_PAD.encode([nonce.as_slice(), &sealed].concat())))
    }

    /// Opens what [`Sealer::seal`] made.
    pub(crate) fn unseal(&self, owner: &str, sealed: &str) -> Result<Vec<u8>, NotOpened> {
        let text = sealed.strip_prefix(FORMAT).ok_or(NotOpened)?;
        let bytes = STANDARD_NO_PAD.decode(text).map_err(|_| NotOpened)?;
        let (nonce, msg) = bytes.split_at_checked(NONCE_LEN).ok_or(NotOpened)?;
        let payload = Payload { msg, aad: owner.as_bytes() };
        self.cipher.decrypt(XNonce::from_slice(nonce), payload).map_err(|_| NotOpened)
    }

    /// A hash that only the holder of the key can make, so that it gives no weak secret away.
    pub(crate) fn fingerprint(&self, bytes: &[u8]) -> String {
        // HMAC takes a key of any length, so this cannot fail.
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.key).unwrap_or_else(|_| unreachable!());
        mac.update(b"fingerprint\0");
        mac.update(bytes);
        STANDARD_NO_PAD.encode(mac.finalize().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_for_its_owner_and_after_a_restart_only() {
        let dir = tempfile::tempdir().unwrap();
        let sealer = Sealer::open(dir.path()).unwrap();
        let sealed = sealer.seal("s1", b"hunter2").unwrap();
        assert!(!sealed.contains("hunter2"));
        let again = Sealer::open(dir.path()).unwrap();
        assert_eq!(again.unseal("s1", &sealed).as_deref(), Ok(&b"hunter2"[..]));
        assert_eq!(again.fingerprint(b"a"), sealer.fingerprint(b"a"));
        let other = Sealer::new([9; 32]);
        for (sealer, owner, text) in
            [(&again, "s2", sealed.as_str()), (&other, "s1", &sealed), (&again, "s1", "x1.AAAA"), (&again, "s1", "")]
        {
            assert_eq!(sealer.unseal(owner, text), Err(NotOpened), "{owner} {text}");
        }
    }

    #[test]
    fn a_damaged_key_file_is_an_error_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(KEY_FILE), "short").unwrap();
        assert!(Sealer::open(dir.path()).is_err());
        assert_eq!(std::fs::read(dir.path().join(KEY_FILE)).unwrap(), b"short");
    }
}
