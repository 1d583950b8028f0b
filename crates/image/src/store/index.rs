//! What is in the store. Pure.

use std::collections::{BTreeMap, HashMap};
use warren_model::reference::{Digest, Reference};
use warren_proto::node::ImageRecord;

/// Where a reference leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// The image.
    pub(super) digest: Digest,
    /// What the registry said the reference is, maybe an index of several platforms; `None` for an imported image, for
    /// which no registry is asked.
    pub(super) resolved: Option<Digest>,
    /// Whether a registry has told this only to owners of saved logins.
    pub(super) private: bool,
}

/// Names and records.
#[derive(Debug, Default)]
pub(super) struct Index {
    names: BTreeMap<String, Name>,
    records: HashMap<Digest, ImageRecord>,
}

impl Index {
    /// Every name with the record it leads to.
    pub(super) fn list(&self) -> Vec<ImageRecord> {
        self.names.keys().filter_map(|name| self.named(name)).collect()
    }

    /// The record that a name leads to, under that name.
    pub(super) fn named(&self, name: &str) -> Option<ImageRecord> {
        let to = self.names.get(name)?;
        let record = self.records.get(&to.digest)?;
        Some(ImageRecord { reference: name.to_owned(), private: to.private, ..record.clone() })
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
        self.records.get(digest).cloned()
    }

    /// The record of an image for somebody to whom a registry shows `repository` now; `None` if it is not here, or came from
    /// other repositories through saved logins alone: that somebody knows a digest gives him no right to the bytes.
    pub(super) fn shown_in(&self, digest: &Digest, repository: &Reference) -> Option<ImageRecord> {
        let record = self.records.get(digest)?;
        let same = |name: &str| {
            Reference::parse(name).is_ok_and(|name| {
                name.registry() == repository.registry() && name.repository() == repository.repository()
            })
        };
        let mut names = self.names.iter().filter(|(_, to)| to.digest == *digest);
        let may = !record.private || names.any(|(name, to)| !to.private || same(name));
        may.then(|| record.clone())
    }

    /// The record of an image that everybody may have.
    pub(super) fn public(&self, digest: &Digest) -> Option<ImageRecord> {
        let record = self.records.get(digest)?;
        let public = !record.private || self.names.values().any(|to| to.digest == *digest && !to.private);
        public.then(|| record.clone())
    }

    /// Digests that no name leads to.
    pub(super) fn unnamed(&self) -> Vec<Digest> {
        self.records.keys().filter(|digest| self.is_unnamed(digest)).cloned().collect()
    }

    /// Whether the image is here and no name leads to it.
    pub(super) fn is_unnamed(&self, digest: &Digest) -> bool {
        self.records.contains_key(digest) && !self.names.values().any(|name| name.digest == *digest)
    }

    /// Adds an image.
    pub(super) fn add(&mut self, digest: Digest, record: ImageRecord) {
        self.records.insert(digest, record);
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
        self.records.remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::hash;

    fn record(reference: &str) -> ImageRecord {
        ImageRecord {
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
            private: false,
        }
    }

    #[test]
    fn an_image_is_unnamed_once_its_last_name_moves_or_goes() {
        let (a, b) = (hash(b"a").unwrap(), hash(b"b").unwrap());
        let mut index = Index::default();
        index.add(a.clone(), record("x:1"));
        index.add(b.clone(), record("y:1"));
        let to = |digest: &Digest| Name { digest: digest.clone(), resolved: None, private: false };
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

    #[test]
    fn a_private_image_is_shown_in_its_repository_alone_until_it_is_public_somewhere() {
        let digest = hash(b"a").unwrap();
        let mut index = Index::default();
        index.add(digest.clone(), ImageRecord { private: true, ..record("r.example/app:1") });
        let name = |private| Name { digest: digest.clone(), resolved: Some(digest.clone()), private };
        index.set_name("r.example/app:1".to_owned(), name(true));
        let of = |text: &str| Reference::parse(text).unwrap();
        assert!(index.shown_in(&digest, &of("r.example/app:other")).is_some());
        for other in ["r.example/app2:1", "evil.example/app:1", "app:1"] {
            assert!(index.shown_in(&digest, &of(other)).is_none(), "{other}");
        }
        assert!(index.public(&digest).is_none());
        index.set_name("open.example/app:1".to_owned(), name(false));
        assert!(index.shown_in(&digest, &of("app:1")).is_some() && index.public(&digest).is_some());
    }
}
