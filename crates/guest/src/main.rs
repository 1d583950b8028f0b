//! `warren-guest`: as `/init` of the initramfs, the agent; under the name `modprobe`, the kernel's module loader.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use warren_guest::{boot, modprobe, standalone, sys};

fn main() -> ExitCode {
    sys::tame_allocator();
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == "modprobe") {
        return modprobe::main(args);
    }
    if rustix::process::getpid().is_init() {
        let Err(error) = boot::run();
        eprintln!("warren-guest: {error}");
        return ExitCode::FAILURE;
    }
    let args: Vec<OsString> = args.collect();
    match args.as_slice() {
        [command, socket, cgroup] if command == "serve" => match standalone::run(socket.as_ref(), cgroup.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("warren-guest: {error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!(
                "warren-guest is the first process of a VM. For tests on a host: warren-guest serve SOCKET CGROUP"
            );
            ExitCode::from(2)
        }
    }
}
