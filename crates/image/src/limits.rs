//! Bounds on what an image may ask of this machine, each with its unit.

/// Most layers of an image.
pub const LAYERS_MAX: usize = 512;
/// Largest manifest or index, bytes.
pub const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Indexes within indexes that are followed.
pub const INDEX_DEPTH_MAX: usize = 4;
/// Manifests and indexes that are looked at to find the one for this machine.
pub const INDEX_ENTRIES_LOOKED_AT_MAX: usize = 32;
/// Largest image config, bytes.
pub const CONFIG_BYTES_MAX: u64 = 8 << 20;
/// Longest path in a layer, bytes.
pub const PATH_LEN_MAX: usize = 4096;
/// Longest target of a symbolic link, bytes; Linux's own limit.
pub const LINK_TARGET_LEN_MAX: usize = 4095;
/// Symbolic links that one path may go through; Linux's own limit.
pub const LINKS_FOLLOWED_MAX: usize = 40;
/// Extended headers of one tar entry, bytes.
pub const TAR_HEADERS_BYTES_MAX: u64 = 1 << 20;
/// Pieces of one sparse file in a tar.
pub const SPARSE_PIECES_MAX: usize = 1 << 20;
