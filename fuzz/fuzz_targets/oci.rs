//! Manifests, indexes and configurations of registries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warren_image::oci::{parse_config, parse_document};

fuzz_target!(|bytes: &[u8]| {
    let _ = parse_document(bytes);
    let _ = parse_config(bytes);
});
