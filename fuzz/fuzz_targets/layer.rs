//! Layers: two tars, one on the other, to an ext4.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs::File;
use warren_image::convert::{Marks, Root};
use warren_image::ext4::Options;

fuzz_target!(|bytes: &[u8]| {
    // Sizes in a tar's headers are not bytes that follow; what is written is no larger than what came.
    let memory = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut root = Root::new(File::from(memory));
    let (below, above) = bytes.split_at(bytes.len() / 2 / 512 * 512);
    if root.apply(below, Marks::Whiteouts).is_ok() && root.apply(above, Marks::Whiteouts).is_ok() {
        let options = Options { label: "fuzz".to_owned(), uuid: [1; 16], made_s: 0, writable: true };
        let _ = root.finish(&options);
    }
});
