//! Images in memory: layers, config, manifest, and the forms in which they are handed over.

use super::{TarFile, root_tar};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// How a layer is compressed.
#[derive(Clone, Copy)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// An image with all its blobs.
pub struct TestImage {
    /// Content by digest.
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Digests of the layers' blobs, lowest first.
    pub layers: Vec<String>,
    pub config: String,
    pub manifest: Vec<u8>,
}

pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

pub fn pack(bytes: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Plain => bytes.to_vec(),
        Packing::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Packing::Zstd => zstd::encode_all(bytes, 1).unwrap(),
    }
}

impl TestImage {
    pub fn new(layers: &[(Vec<TarFile>, Packing)]) -> Self {
        Self::with_architecture(layers, "amd64")
    }

    pub fn with_architecture(layers: &[(Vec<TarFile>, Packing)], architecture: &str) -> Self {
        let mut blobs = BTreeMap::new();
        let mut diff_ids = Vec::new();
        let mut digests = Vec::new();
        let mut descriptors = Vec::new();
        for (files, packing) in layers {
            let tar = root_tar(files);
            diff_ids.push(digest(&tar));
            let blob = pack(&tar, *packing);
            descriptors.push(json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": digest(&blob), "size": blob.len()}));
            digests.push(digest(&blob));
            blobs.insert(digest(&blob), blob);
        }
        let config = json!({"architecture": architecture, "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/bin", "LANG=C"], "User": "1000:1000", "WorkingDir": "/work",
                "Entrypoint": ["/entry"], "Cmd": ["a", "b"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = config.to_string().into_bytes();
        let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(&config), "size": config.len()},
            "layers": descriptors});
        let manifest = manifest.to_string().into_bytes();
        let config_digest = digest(&config);
        blobs.insert(config_digest.clone(), config);
        blobs.insert(digest(&manifest), manifest.clone());
        Self { blobs, layers: digests, config: config_digest, manifest }
    }

    /// An index that lists this image beside others.
    pub fn index(&self, others: &[(&str, &str)]) -> Value {
        let mut manifests: Vec<Value> = others
            .iter()
            .map(|(os, arch)| {
                json!({"digest": digest(arch.as_bytes()), "size": 1, "platform": {"os": os, "architecture": arch}})
            })
            .collect();
        manifests.push(json!({"mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(&self.manifest), "size": self.manifest.len(),
            "platform": {"os": "linux", "architecture": "amd64"}}));
        json!({"schemaVersion": 2, "manifests": manifests})
    }

    /// Files of an OCI layout.
    pub fn layout(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = vec![
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            ("index.json".to_owned(), self.index(&[("linux", "arm64")]).to_string().into_bytes()),
        ];
        for (digest, bytes) in &self.blobs {
            files.push((format!("blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap()), bytes.clone()));
        }
        files
    }

    pub fn write_layout(&self, dir: &Path) {
        for (name, bytes) in self.layout() {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    pub fn layout_tar(&self) -> Vec<u8> {
        let files: Vec<TarFile> = self.layout().iter().map(|(name, bytes)| TarFile::file(name, bytes)).collect();
        root_tar(&files)
    }

    /// As `docker save` wrote it for years: a folder a layer, layers uncompressed, equal ones as links.
    pub fn docker_archive(&self) -> Vec<u8> {
        let hex = |digest: &str| digest.strip_prefix("sha256:").unwrap().to_owned();
        let mut files = Vec::new();
        let mut names = Vec::new();
        for (i, digest) in self.layers.iter().enumerate() {
            let name = format!("{i:064x}/layer.tar");
            match self.layers[..i].iter().position(|other| other == digest) {
                Some(first) => files.push(TarFile::symlink(&name, format!("../{first:064x}/layer.tar"))),
                None => files.push(TarFile::file(&name, &self.blobs[digest])),
            }
            names.push(name);
        }
        let config = format!("{}.json", hex(&self.config));
        files.push(TarFile::file(&config, &self.blobs[&self.config]));
        let manifest = json!([{"Config": config, "RepoTags": ["x:1"], "Layers": names}]);
        files.push(TarFile::file("manifest.json", manifest.to_string().as_bytes()));
        root_tar(&files)
    }
}
