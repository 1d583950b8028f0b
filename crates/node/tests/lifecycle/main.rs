//! The node over simulated shims: admission, deletes that win, adoption after a restart, killed shims. No VM is started.
//!
//! This binary is also the shim: called as `shim --dir DIR` it speaks the shim's protocol and nothing else; and the node that is killed in
//! the middle: `victim DIR DEED`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cases;
mod images;
mod snapshots;
mod world;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, shim, _, dir] = args.as_slice()
        && shim == "shim"
    {
        let outcome = warren_testkit::shim::run(std::path::Path::new(dir));
        std::process::exit(i32::from(outcome.is_err()));
    }
    if let [_, victim, dir, deed] = args.as_slice()
        && victim == "victim"
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(snapshots::victim(std::path::Path::new(dir), deed));
    }
    let trials = cases::ALL.iter().map(|(name, case)| {
        Trial::test(*name, move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(case());
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
