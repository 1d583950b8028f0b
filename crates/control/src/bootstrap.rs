//! The first start makes an owner and leaves his API key in a file.

use crate::auth::hash_key;
use crate::clock::now_ms;
use crate::store::{Store, StoreError, User};
use crate::{keyfile, random};
use std::io;
use std::path::Path;
use warren_proto::http::KeyLimits;

/// Name of the file with the owner's API key in the data directory, mode 600.
pub const API_KEY_FILE: &str = "api-key";

/// Why the owner could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootstrapError {
    /// The key file.
    #[error("{API_KEY_FILE} in the data directory")]
    KeyFile(#[source] io::Error),
    /// Its content is no key; it is not replaced, since somebody wrote it.
    #[error("{API_KEY_FILE} in the data directory must hold one key of at least 16 visible characters on one line")]
    BadKey,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Shortest key that an operator may write into the file, bytes.
const KEY_LEN_MIN: usize = 16;

/// Makes owner and key if they are missing, and answers the key. The file wins: a key that the operator wrote there is taken over.
///
/// The file is written before the database, so that a crash in between is mended by the next start.
pub(crate) async fn bootstrap(store: &Store, data_dir: &Path) -> Result<String, BootstrapError> {
    let path = data_dir.join(API_KEY_FILE);
    let key = match keyfile::read(&path).map_err(BootstrapError::KeyFile)? {
        Some(content) => parse(&content).ok_or(BootstrapError::BadKey)?,
        None => {
            let key = random::api_key().map_err(BootstrapError::KeyFile)?;
            keyfile::write(&path, format!("{key}\n").as_bytes()).map_err(BootstrapError::KeyFile)?;
            key
        }
    };
    let hash = hash_key(&key);
    match store.owner().await? {
        Some(owner) => store.key_insert(&owner.id, &hash, &KeyLimits::default(), now_ms()).await?,
        None => {
            let owner = User {
                id: random::id('u').map_err(BootstrapError::KeyFile)?,
                slug: "owner".to_owned(),
                name: "Owner".to_owned(),
                email: "owner@localhost".to_owned(),
                is_admin: true,
            };
            store.user_insert(&owner, &hash, now_ms()).await?;
        }
    }
    Ok(key)
}

fn parse(content: &[u8]) -> Option<String> {
    let key = std::str::from_utf8(content).ok()?.trim();
    (key.len() >= KEY_LEN_MIN && key.bytes().all(|b| b.is_ascii_graphic())).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_key_stays_whatever_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let key = bootstrap(&store, dir.path()).await.unwrap();
        assert_eq!(bootstrap(&store, dir.path()).await.unwrap(), key);
        let owner = store.key_get(&hash_key(&key)).await.unwrap().unwrap().user;
        assert!(owner.is_admin);

        // A lost key file: another key for the same owner.
        std::fs::remove_file(dir.path().join(API_KEY_FILE)).unwrap();
        let second = bootstrap(&store, dir.path()).await.unwrap();
        assert_ne!(second, key);
        assert_eq!(store.key_get(&hash_key(&second)).await.unwrap().unwrap().user, owner);

        // A lost database: the same key.
        let fresh = Store::open(tempfile::tempdir().unwrap().path()).await.unwrap();
        assert_eq!(bootstrap(&fresh, dir.path()).await.unwrap(), second);

        std::fs::write(dir.path().join(API_KEY_FILE), "short").unwrap();
        assert!(matches!(bootstrap(&store, dir.path()).await, Err(BootstrapError::BadKey)));
    }
}
