//! What is in the store. Pure.

use crate::chunks::Manifest;
use std::collections::{BTreeMap, HashMap};
use warren_model::reference::{Digest, Reference};
use warren_proto::node::ImageRecord;

/// Uses of an image within this time count as one, milliseconds.
const USE_NOTED_EVERY_MS: u64 = 60_000;

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

/// An image that is in the store.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    record: ImageRecord,
    /// Slot of its disk's header.
    pub(super) header: u32,
    /// Length of its disk, bytes.
    pub(super) size: u64,
    /// When it was last asked for, milliseconds since 1970.
    last_used_ms: u64,
}

impl Stored {
    /// An image of this disk.
    pub(super) fn new(record: ImageRecord, disk: &Manifest, last_used_ms: u64) -> Self {
        Self { record, header: disk.header, size: disk.size, last_used_ms }
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
        let to = self.names.get(name)?;
        let stored = self.images.get(&to.digest)?;
        Some(ImageRecord { reference: name.to_owned(), private: to.private, ..stored.record.clone() })
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

    /// When an image was last asked for, milliseconds since 1970.
    pub(super) fn last_used_ms(&self, digest: &Digest) -> Option<u64> {
        Some(self.images.get(digest)?.last_used_ms)
    }

    /// Notes that an image is asked for; whether that was long ago, so that it is worth to be written down.
    pub(super) fn used(&mut self, digest: &Digest, now_ms: u64) -> bool {
        match self.images.get_mut(digest) {
            Some(stored) if now_ms.saturating_sub(stored.last_used_ms) >= USE_NOTED_EVERY_MS => {
                stored.last_used_ms = now_ms;
                true
            }
            _ => false,
        }
    }

    /// Images to which only names of registries lead, with these and their last use.
    pub(super) fn refetchable(&self) -> Vec<(Digest, Vec<String>, u64)> {
        let mut names: HashMap<&Digest, Option<Vec<String>>> = HashMap::new();
        for (reference, name) in &self.names {
            let so_far = names.entry(&name.digest).or_insert(Some(Vec::new()));
            match &name.resolved {
                Some(_) => so_far.iter_mut().for_each(|names| names.push(reference.clone())),
                None => *so_far = None,
            }
        }
        let known = |(digest, names): (&Digest, Option<Vec<String>>)| {
            Some((digest.clone(), names?, self.images.get(digest)?.last_used_ms))
        };
        names.into_iter().filter_map(known).collect()
    }

    /// Names for which registries give an image.
    pub(super) fn fetched_names(&self, digest: &Digest) -> Vec<String> {
        let fetched = self.names.iter().filter(|(_, to)| to.digest == *digest && to.resolved.is_some());
        fetched.map(|(name, _)| name.clone()).collect()
    }

    /// All images.
    pub(super) fn digests(&self) -> Vec<&Digest> {
        self.images.keys().collect()
    }

    /// The record of an image for somebody to whom a registry shows `repository` now; `None` if it is not here, or came from
    /// other repositories through saved logins alone: that somebody knows a digest gives him no right to the bytes.
    pub(super) fn shown_in(&self, digest: &Digest, repository: &Reference) -> Option<ImageRecord> {
        let record = &self.images.get(digest)?.record;
        // Also the name that it was made for, which is all that an image of another node has here.
        let same = |name: &str| Reference::parse(name).is_ok_and(|name| name.shares_repository_with(repository));
        let mut names = self.names.iter().filter(|(_, to)| to.digest == *digest);
        let may = !record.private || same(&record.reference) || names.any(|(name, to)| !to.private || same(name));
        may.then(|| record.clone())
    }

    /// The record of an image that everybody may have.
    pub(super) fn public(&self, digest: &Digest) -> Option<ImageRecord> {
        let record = &self.images.get(digest)?.record;
        let public = self.names.values().any(|to| to.digest == *digest && !to.private);
        public.then(|| record.clone())
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
            shell: Vec::new(),
            on_build: Vec::new(),
            architecture: "amd64".to_owned(),
            private: false,
        };
        Stored { record, header: 0, size: 0, last_used_ms: 0 }
    }

    #[test]
    fn an_image_is_unnamed_once_its_last_name_moves_or_goes() {
        let (a, b) = (hash(b"a").unwrap(), hash(b"b").unwrap());
        let mut index = Index::default();
        index.add(a.clone(), stored("x:1"));
        index.add(b.clone(), stored("y:1"));
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
    fn only_what_registries_can_give_again_may_go() {
        let (a, b) = (hash(b"a").unwrap(), hash(b"b").unwrap());
        let mut index = Index::default();
        index.add(a.clone(), stored("x:1"));
        index.add(b.clone(), stored("y:1"));
        let name = |digest: &Digest, resolved: Option<&Digest>| Name {
            digest: digest.clone(),
            resolved: resolved.cloned(),
            private: false,
        };
        index.set_name("x:1".to_owned(), name(&a, Some(&a)));
        index.set_name("x:2".to_owned(), name(&a, Some(&a)));
        index.set_name("y:1".to_owned(), name(&b, Some(&b)));
        index.set_name("mine:1".to_owned(), name(&b, None));
        assert_eq!(index.refetchable(), [(a.clone(), vec!["x:1".to_owned(), "x:2".to_owned()], 0)]);
        assert!(index.used(&a, 100_000));
        assert!(!index.used(&a, 100_000 + USE_NOTED_EVERY_MS - 1));
        assert_eq!(index.last_used_ms(&a), Some(100_000));
    }

    #[test]
    fn a_private_image_is_shown_in_its_repository_alone_until_it_is_public_somewhere() {
        let digest = hash(b"a").unwrap();
        let mut index = Index::default();
        let mut image = stored("r.example/app:1");
        image.record.private = true;
        index.add(digest.clone(), image);
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
