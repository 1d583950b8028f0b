//! Layers of disks: what a VMM in the hands of its guest may leave.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warren_image::qcow2::{Cluster, Layer};

/// A header that is looked past, so that mutations reach the tables: magic, version, clusters of 64 KiB, a disk of 1 GiB, two tables.
const HEADER: [(usize, &[u8]); 6] =
    [(0, b"QFI\xfb\0\0\0\x03"), (20, &[0, 0, 0, 16]), (24, &(1u64 << 30).to_be_bytes()), (32, &[0, 0, 0, 0, 0, 0, 0, 2]), (60, &[0; 4]), (72, &[0; 8])];

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    // An odd first byte leaves the header as it is.
    if bytes.len() > 104 && bytes[0].is_multiple_of(2) {
        HEADER.iter().for_each(|(at, word)| bytes[*at..*at + word.len()].copy_from_slice(word));
    }
    let Ok(mut layer) = Layer::open(&bytes[..]) else { return };
    for number in 0..layer.tables() {
        let Ok(table) = layer.table(number) else { return };
        for cluster in table.into_iter().flatten() {
            if let Cluster::Data(at) = cluster {
                let _ = layer.read(at);
            }
        }
    }
});
