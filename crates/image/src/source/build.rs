//! A package becomes a disk: layers are read, checked and converted. Blocks; meant for a thread of its own.

use super::Package;
use crate::chunks::{Manifest, Writer};
use crate::convert::{ConvertError, HashingReader, Marks, Root, Sha256Hex, decompressed};
use crate::ext4::{Ext4Error, Options, Summary, Target};
use crate::oci::Config;
use crate::progress::Progress;
use crate::registry::PullError;
use crate::tar::TarError;
use std::io::{self, ErrorKind, Read};
use warren_model::reference::{BadReference, Digest};

/// Label of every root file system.
const LABEL: &str = "warren-root";
/// Bytes read at once where nothing is done with them but hashing.
const DRAIN_LEN: usize = 256 << 10;

/// A disk that was made, synced. Whoever has it sees to it that its manifest is kept or released.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) digest: Digest,
    pub(crate) config: Config,
    pub(crate) summary: Summary,
    pub(crate) manifest: Manifest,
}

/// A disk could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// The output could not be made or synced.
    #[error("writing the disk failed")]
    Write(#[source] io::Error),
    /// A layer could not be read.
    #[error("a layer cannot be read")]
    Read(#[source] io::Error),
    /// A layer is not what its digest says.
    #[error("layer {layer} has the digest {found}, expected {expected}")]
    Digest {
        /// Which, from 1.
        layer: usize,
        /// As the manifest or config says.
        expected: Digest,
        /// As it is.
        found: String,
    },
    /// A layer cannot be converted.
    #[error("layer {layer}")]
    Convert {
        /// Which, from 1.
        layer: usize,
        /// Why.
        #[source]
        error: ConvertError,
    },
    /// Metadata could not be written.
    #[error("the disk cannot be made")]
    Finish(#[source] ConvertError),
    /// Never seen: a hash of our own that does not parse.
    #[error(transparent)]
    OwnDigest(#[from] BadReference),
}

impl BuildError {
    /// Stable code of `proto::node::ImageError`.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Digest { .. } => "digest_mismatch",
            Self::Write(e) => io_code(e),
            // A layer that did not come says why.
            Self::Read(e) => match e.get_ref().and_then(|inner| inner.downcast_ref::<PullError>()) {
                Some(pull) => pull.code(),
                None => io_code(e),
            },
            Self::Convert { error, .. } | Self::Finish(error) => convert_code(error),
            Self::OwnDigest(_) => "failed",
        }
    }
}

fn convert_code(error: &ConvertError) -> &'static str {
    match error {
        ConvertError::Write(e) | ConvertError::Ext4(Ext4Error::Io(e)) | ConvertError::Tar(TarError::Read(e)) => {
            io_code(e)
        }
        _ => "bad_content",
    }
}

fn io_code(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "no_space",
        // What decoders say of damaged streams.
        ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof | ErrorKind::Other => "bad_content",
        ErrorKind::FileTooLarge => "bad_content",
        _ => "failed",
    }
}

/// Makes the disk of `package` in `target`. Each layer waits for its `turn` once it is here, so that nobody's turn is spent on waiting for
/// a registry.
pub(crate) fn build<T>(
    package: Package,
    target: Writer,
    progress: &Progress,
    turn: impl Fn() -> T,
) -> Result<Built, BuildError> {
    let mut root = Root::new(target);
    let mut only_hash = None;
    for (i, layer) in package.layers.into_iter().enumerate() {
        let source = (layer.open)().map_err(BuildError::Read)?;
        let _turn = turn();
        let checks = Checks { layer: i + 1, blob: layer.blob.map(|blob| blob.digest), diff_id: layer.diff_id };
        only_hash = Some(apply(&mut root, source, checks, package.marks, progress)?);
        progress.layer_converted();
    }
    let digest = match (package.digest, only_hash) {
        (Some(digest), _) => digest,
        (None, hash) => Digest::parse(&format!("sha256:{}", hash.unwrap_or_default().hex()))?,
    };
    let _turn = turn();
    let options = Options { label: LABEL.to_owned(), uuid: uuid(&digest), made_s: 0, writable: true };
    let (target, summary) = root.finish(&options).map_err(BuildError::Finish)?;
    let manifest = target.commit().map_err(BuildError::Write)?;
    Ok(Built { digest, config: package.config, summary, manifest })
}

/// What a layer must turn out to be.
struct Checks {
    /// Which, from 1.
    layer: usize,
    /// Digest of its compressed bytes.
    blob: Option<Digest>,
    /// Digest of the uncompressed tar.
    diff_id: Option<Digest>,
}

fn apply(
    root: &mut Root<impl Target>,
    source: Box<dyn Read + Send>,
    checks: Checks,
    marks: Marks,
    progress: &Progress,
) -> Result<Sha256Hex, BuildError> {
    let number = checks.layer;
    let (mut raw, blob_hash) = HashingReader::new(Counted { inner: source, progress });
    let (done, diff_hash) = apply_stream(root, &mut raw, &blob_hash, marks);
    // Bytes after the end count too. A wrong digest explains whatever else went wrong.
    let drained = drain(&mut raw);
    let check = |expected: Option<Digest>, hash: &Sha256Hex| match expected {
        Some(expected) if expected.hex() != hash.hex() => {
            Err(BuildError::Digest { layer: number, expected, found: format!("sha256:{}", hash.hex()) })
        }
        _ => Ok(()),
    };
    let read_failed = matches!(&done, Err(ConvertError::Tar(TarError::Read(e))) if io_code(e) == "failed");
    if !read_failed && drained.is_ok() {
        check(checks.blob, &blob_hash)?;
    }
    done.map_err(|error| BuildError::Convert { layer: number, error })?;
    drained.map_err(BuildError::Read)?;
    check(checks.diff_id, &diff_hash)?;
    Ok(blob_hash)
}

/// Applies a possibly compressed tar; also gives the hash of the uncompressed bytes.
fn apply_stream(
    root: &mut Root<impl Target>,
    raw: &mut impl Read,
    raw_hash: &Sha256Hex,
    marks: Marks,
) -> (Result<(), ConvertError>, Sha256Hex) {
    match decompressed(raw) {
        Err(error) => (Err(TarError::Read(error).into()), Sha256Hex::default()),
        Ok(stream) if stream.compressed => {
            let (plain, hash) = HashingReader::new(stream.reader);
            (root.apply(plain, marks), hash)
        }
        Ok(stream) => (root.apply(stream.reader, marks), raw_hash.clone()),
    }
}

fn drain(source: &mut impl Read) -> io::Result<()> {
    let mut buffer = vec![0; DRAIN_LEN];
    while source.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Identity of the file system: the same content has the same.
fn uuid(digest: &Digest) -> [u8; 16] {
    let mut out = [0; 16];
    for (byte, pair) in out.iter_mut().zip(digest.hex().as_bytes().chunks_exact(2)) {
        let nibble = |c: u8| if c.is_ascii_digit() { c - b'0' } else { (c | 0x20) - b'a' + 10 };
        *byte = nibble(pair[0]) << 4 | nibble(pair[1]);
    }
    out
}

/// Tells the progress what passes.
struct Counted<'p, R> {
    inner: R,
    progress: &'p Progress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buf)?;
        self.progress.add_converted(len as u64);
        Ok(len)
    }
}
