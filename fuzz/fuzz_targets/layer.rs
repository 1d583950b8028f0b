//! Layers: two tars, one on the other, to an ext4.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs::File;
use warren_image::convert::{Marks, Root};
use warren_image::ext4::Options;

/// Where a header says that it is one, and where its checksum is.
const MAGIC: std::ops::Range<usize> = 257..262;
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Makes the checksums of headers right, so that mutations of a tar get past them.
fn repaired(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for header in bytes.chunks_exact_mut(512).filter(|header| &header[MAGIC] == b"ustar") {
        header[CHECKSUM].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let bytes = repaired(bytes);
    // Sizes in a tar's headers are not bytes that follow; what is written is no larger than what came.
    let memory = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut root = Root::new(File::from(memory));
    let (below, above) = bytes.split_at(bytes.len() / 2 / 512 * 512);
    if root.apply(below, Marks::Whiteouts).is_ok() && root.apply(above, Marks::Whiteouts).is_ok() {
        let options = Options { label: "fuzz".to_owned(), uuid: [1; 16], made_s: 0, writable: true };
        let _ = root.finish(&options);
    }
});
