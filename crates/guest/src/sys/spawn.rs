//! Starts a process in a few system calls.
//!
//! Not `std::process::Command`: with a cgroup, a session and a user to set it forks, and under software emulation copying page
//! tables costs more than all the rest. Here the child borrows the agent's memory (as in `posix_spawn`) until it executes its
//! program, is born in its cgroup, and tells by plain memory which step failed.
#![allow(unsafe_code)]

use super::world::{Entry, World};
use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the guest agent starts processes by x86-64 assembly");

/// From `linux/sched.h`; the C library's bindings have them in a type that is too narrow.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// Stack of the child until it executes its program, bytes.
const STACK_LEN: usize = 32 << 10;

/// A process to start.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    /// Programs to try in order; the next one is tried where the one before does not exist.
    pub programs: &'a [CString],
    /// Arguments, the program's name first.
    pub argv: &'a [CString],
    /// Environment, `NAME=value`.
    pub envp: &'a [CString],
    /// Working directory.
    pub cwd: &'a CStr,
    /// Standard input, output and error; all above 2.
    pub stdio: [BorrowedFd<'a>; 3],
    /// A further descriptor, and the number that it gets in the child.
    pub extra: Option<(BorrowedFd<'a>, RawFd)>,
    /// Whether standard input is a terminal that becomes the controlling one.
    pub terminal: bool,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'a [u32],
    /// Folder of the cgroup (version 2) to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Where it lives.
    pub world: World<'a>,
}

/// What the child was doing when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum SpawnStep {
    /// Being born.
    Clone = 0,
    /// Entering the mounts that it is to see.
    World = 1,
    /// Setting its streams and terminal up.
    Streams = 2,
    /// Entering the working directory.
    Cwd = 3,
    /// Becoming the user.
    User = 4,
    /// Executing the program.
    Exec = 5,
}

/// No process was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnFailure {
    /// In this step.
    pub step: SpawnStep,
    /// The kernel's error number.
    pub errno: i32,
}

/// What the child reads and writes, in the memory that it shares with the parent.
struct Shared {
    programs: *const *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    entry: Entry,
    cwd: *const c_char,
    stdio: [RawFd; 3],
    extra: Option<(RawFd, RawFd)>,
    terminal: bool,
    uid: u32,
    gid: u32,
    groups: *const u32,
    groups_len: usize,
    step: AtomicI32,
    errno: AtomicI32,
}

/// Starts the process in a session of its own, with default signal handling, and answers its pid. When this returns, the child
/// runs its program or is gone.
pub fn spawn(launch: &Launch<'_>) -> Result<u32, SpawnFailure> {
    let programs = pointers(launch.programs);
    let argv = pointers(launch.argv);
    let envp = pointers(launch.envp);
    let shared = Shared {
        programs: programs.as_ptr(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        entry: launch.world.entry(),
        cwd: launch.cwd.as_ptr(),
        stdio: launch.stdio.map(|fd| fd.as_raw_fd()),
        extra: launch.extra.map(|(fd, number)| (fd.as_raw_fd(), number)),
        terminal: launch.terminal,
        uid: launch.uid,
        gid: launch.gid,
        groups: launch.groups.as_ptr(),
        groups_len: launch.groups.len(),
        step: AtomicI32::new(SpawnStep::Clone as i32),
        errno: AtomicI32::new(0),
    };
    let pid = with_signals_blocked(|| launch.world.with_pid_namespace(|| clone_child(&shared, launch)));
    let errno = shared.errno.load(Ordering::Relaxed);
    if pid < 0 {
        return Err(SpawnFailure { step: SpawnStep::Clone, errno: -pid as i32 });
    }
    if errno != 0 {
        return Err(SpawnFailure { step: step_from(shared.step.load(Ordering::Relaxed)), errno });
    }
    Ok(pid as u32)
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

fn step_from(number: i32) -> SpawnStep {
    [SpawnStep::World, SpawnStep::Streams, SpawnStep::Cwd, SpawnStep::User, SpawnStep::Exec]
        .into_iter()
        .find(|&step| step as i32 == number)
        .unwrap_or(SpawnStep::Clone)
}

/// No signal handler of the parent may run in the child while both use one memory.
fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are initialised by the calls that get them before they are read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        result
    }
}

/// Answers the pid, or a negative error number.
fn clone_child(shared: &Shared, launch: &Launch<'_>) -> i64 {
    let mut stack = Vec::<u8>::with_capacity(STACK_LEN);
    // SAFETY: all members are numbers, for which zero is valid.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_VM | libc::CLONE_VFORK) as u64 | CLONE_CLEAR_SIGHAND | launch.world.clone_flags();
    args.exit_signal = libc::SIGCHLD as u64;
    args.stack = stack.as_mut_ptr() as u64;
    args.stack_size = (STACK_LEN & !15) as u64;
    if let Some(fd) = launch.cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = fd.as_raw_fd() as u64;
    }
    // The kernel takes stack + stack_size as the child's stack pointer, which must be a multiple of 16 at a call.
    args.stack = (args.stack + 15) & !15;
    args.stack_size -= 16;
    let mut result: i64 = libc::SYS_clone3;
    // SAFETY: the child shares our memory but runs on `stack`, of which it uses less than STACK_LEN, and never returns from
    // `child`; the parent is suspended (CLONE_VFORK) until the child has executed a program or exited, so that everything
    // `shared` points to stays valid and unshared while the child uses it.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") result,
            in("rdi") &raw const args,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") child as unsafe extern "C" fn(*const Shared) -> !,
            in("r13") ptr::from_ref(shared),
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    drop(stack);
    result
}

/// The child's whole life before its program. Only calls that neither allocate nor lock.
///
/// # Safety
/// `shared` and everything in it is valid, and the caller runs in the child of [`clone_child`].
unsafe extern "C" fn child(shared: *const Shared) -> ! {
    // SAFETY: see above; all calls get pointers that `spawn` made from live slices.
    unsafe {
        let shared = &*shared;
        let step = run(shared);
        shared.step.store(step as i32, Ordering::Relaxed);
        shared.errno.store((*libc::__errno_location()).max(1), Ordering::Relaxed);
        libc::_exit(127)
    }
}

/// Goes through the steps up to the program; answers the one that failed.
///
/// # Safety
/// As for [`child`].
unsafe fn run(shared: &Shared) -> SpawnStep {
    // SAFETY: as for `child`; the child shares its parent's memory alone.
    unsafe {
        if !shared.entry.enter() {
            return SpawnStep::World;
        }
        if !set_streams_up(shared) {
            return SpawnStep::Streams;
        }
        if libc::chdir(shared.cwd) != 0 {
            return SpawnStep::Cwd;
        }
        if !become_user(shared) {
            return SpawnStep::User;
        }
        reset_signals();
        let mut program = shared.programs;
        while !(*program).is_null() {
            libc::execve(*program, shared.argv, shared.envp);
            program = program.add(1);
            if !(*program).is_null() && !matches!(*libc::__errno_location(), libc::ENOENT | libc::ENOTDIR) {
                break;
            }
        }
        SpawnStep::Exec
    }
}

/// # Safety
/// As for [`child`].
unsafe fn set_streams_up(shared: &Shared) -> bool {
    // SAFETY: the descriptors are open in the child, whose table is a copy of the parent's.
    unsafe {
        libc::setsid();
        for (number, &fd) in shared.stdio.iter().enumerate() {
            if libc::dup2(fd, number as RawFd) < 0 {
                return false;
            }
        }
        if let Some((fd, number)) = shared.extra
            && libc::dup2(fd, number) < 0
        {
            return false;
        }
        !shared.terminal || libc::ioctl(0, libc::TIOCSCTTY, 0) == 0
    }
}

/// # Safety
/// As for [`child`]. Raw calls, since the C library's would try to change the threads of the parent too.
unsafe fn become_user(shared: &Shared) -> bool {
    // SAFETY: `groups` is valid for `groups_len` numbers.
    unsafe {
        if shared.uid == 0 && shared.gid == 0 && shared.groups_len == 0 {
            return true;
        }
        libc::syscall(libc::SYS_setgroups, shared.groups_len, shared.groups) == 0
            && libc::syscall(libc::SYS_setresgid, shared.gid, shared.gid, shared.gid) == 0
            && libc::syscall(libc::SYS_setresuid, shared.uid, shared.uid, shared.uid) == 0
    }
}

/// # Safety
/// As for [`child`], whose table of signal handlers is a copy.
unsafe fn reset_signals() {
    // SAFETY: both structs are plain numbers; zero is the default action and the empty set.
    unsafe {
        // The Rust runtime ignores it, and what is ignored stays so across an exec.
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, &raw const default, ptr::null_mut());
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}
