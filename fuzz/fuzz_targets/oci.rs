//! Manifests, indexes and configurations of registries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warren_image::oci::{Search, parse_config};

fuzz_target!(|bytes: &[u8]| {
    let _ = Search::default().look(bytes);
    let _ = parse_config(bytes);
});
