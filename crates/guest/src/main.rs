//! Warren-guest: first process in the VM: mount, reap, exec, files.
fn main() {}
