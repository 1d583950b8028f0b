//! What is in the store. Pure.

use crate::chunks::Manifest;
use std::collections::{BTreeMap, HashMap};
use warren_model::reference::Digest;
use warren_proto::node::ImageRecord;

/// Where a reference leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// The image.
    pub(super) digest: Digest,
    /// What the registry said the reference is, maybe an index of several platforms; `None` for an imported image, for
    /// which no registry is asked.
    pub(super) resolved: Option<Digest>,
}

/// An image that is in the store.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    record: ImageRecord,
    /// Slot of its disk's header.
    pub(super) header: u32,
    /// Length of its disk, bytes.
    pub(super) size: u64,
}

impl Stored {
    /// An image of this disk.
    pub(super) fn new(record: ImageRecord, disk: &Manifest) -> Self {
        Self { record, header: disk.header, size: disk.size }
    }
}

/// Names and what they lead to.
#[derive(Debug, Default)]
pub(super) struct Index {
    names: BTreeMap<String, Name>,
    images: HashMap<Digest, Stored>,
}

impl Index {
    /// Every name with the record it leads to.
    pub(super) fn list(&self) -> Vec<ImageRecord> {
        self.names.keys().filter_map(|name| self.named(name)).collect()
    }

    /// The record that a name leads to, under that name.
    pub(super) fn named(&self, name: &str) -> Option<ImageRecord> {
        let stored = self.images.get(&self.names.get(name)?.digest)?;
        Some(ImageRecord { reference: name.to_owned(), ..stored.record.clone() })
    }

    /// Where a name leads.
    pub(super) fn name(&self, name: &str) -> Option<&Name> {
        self.names.get(name)
    }

    /// The digest that a name leads to.
    pub(super) fn named_digest(&self, name: &str) -> Option<Digest> {
        Some(self.names.get(name)?.digest.clone())
    }

    /// A record by digest, under the name it was made for.
    pub(super) fn record(&self, digest: &Digest) -> Option<ImageRecord> {
        self.images.get(digest).map(|stored| stored.record.clone())
    }

    /// An image by digest.
    pub(super) fn stored(&self, digest: &Digest) -> Option<&Stored> {
        self.images.get(digest)
    }

    /// Digests that no name leads to.
    pub(super) fn unnamed(&self) -> Vec<Digest> {
        self.images.keys().filter(|digest| self.is_unnamed(digest)).cloned().collect()
    }

    /// Whether the image is here and no name leads to it.
    pub(super) fn is_unnamed(&self, digest: &Digest) -> bool {
        self.images.contains_key(digest) && !self.names.values().any(|name| name.digest == *digest)
    }

    /// Adds an image.
    pub(super) fn add(&mut self, digest: Digest, image: Stored) {
        self.images.insert(digest, image);
    }

    /// Adds or moves a name. The digest it led to before, if that was another.
    pub(super) fn set_name(&mut self, name: String, to: Name) -> Option<Digest> {
        let digest = to.digest.clone();
        self.names.insert(name, to).map(|old| old.digest).filter(|old| *old != digest)
    }

    /// Drops a name.
    pub(super) fn forget_name(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// Drops an image.
    pub(super) fn forget(&mut self, digest: &Digest) {
        self.images.remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::hash;

    fn stored(reference: &str) -> Stored {
        let record = ImageRecord {
            reference: reference.to_owned(),
            digest: String::new(),
            size_bytes: 1,
            created_at_ms: 0,
            env: BTreeMap::new(),
            user: None,
            workdir: None,
            entrypoint: Vec::new(),
            cmd: Vec::new(),
            architecture: "amd64".to_owned(),
        };
        Stored { record, header: 0, size: 0 }
    }

    #[test]
    fn an_image_is_unnamed_once_its_last_name_moves_or_goes() {
        let (a, b) = (hash(b"a").unwrap(), hash(b"b").unwrap());
        let mut index = Index::default();
        index.add(a.clone(), stored("x:1"));
        index.add(b.clone(), stored("y:1"));
        let to = |digest: &Digest| Name { digest: digest.clone(), resolved: None };
        assert_eq!(index.set_name("x:1".to_owned(), to(&a)), None);
        assert_eq!(index.set_name("x:2".to_owned(), to(&a)), None);
        assert_eq!(index.set_name("x:1".to_owned(), to(&b)), Some(a.clone()));
        assert!(!index.is_unnamed(&a));
        assert_eq!(index.named("x:2").unwrap().reference, "x:2");
        index.forget_name("x:2");
        assert_eq!(index.unnamed(), std::slice::from_ref(&a));
        index.forget(&a);
        assert!(!index.is_unnamed(&a));
        assert_eq!(index.list().len(), 1);
    }
}
