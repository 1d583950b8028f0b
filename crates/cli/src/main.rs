//! The one binary: client commands and serve, shim; wiring and printing only.
fn main() {}
