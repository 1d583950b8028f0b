//! Image references of clients.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warren_model::reference::{Digest, Reference};

fuzz_target!(|text: &str| {
    if let Ok(reference) = Reference::parse(text) {
        // What is shown can be read again, and means the same.
        assert_eq!(Reference::parse(&reference.to_string()).as_ref(), Ok(&reference));
    }
    let _ = Digest::parse(text);
});
