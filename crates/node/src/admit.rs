//! May this machine take one more sandbox? Pure.

use warren_model::Shape;

/// Guest memory that may be promised per byte of host memory: guests share their template's pages, and most of what they are
/// promised stays untouched.
const MEMORY_OVERCOMMIT: u64 = 4;
/// Host memory that must be free for a start, MiB.
const MEMORY_FREE_MIN_MIB: u64 = 768;
/// Host disk that must be free for a start, MiB.
const DISK_FREE_MIN_MIB: u64 = 1024;
/// Most sandboxes on one machine.
const SANDBOXES_MAX: u64 = 4096;

/// What the host has and what is free now, MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) memory_mib: u64,
    pub(crate) memory_free_mib: u64,
    pub(crate) disk_free_mib: u64,
}

/// What has been promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Promised {
    pub(crate) sandboxes: u64,
    pub(crate) memory_mib: u64,
}

/// The answer to a request for room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Admit,
    /// Not now.
    Full(String),
    /// Never on this machine.
    Never(String),
}

/// Guest memory that may be promised in all, MiB.
pub(crate) fn capacity_mib(host: &Host) -> u64 {
    host.memory_mib.saturating_mul(MEMORY_OVERCOMMIT)
}

/// Decides about one more sandbox of `shape`.
pub(crate) fn admit(host: &Host, promised: &Promised, shape: Shape) -> Verdict {
    if shape.memory_mib > host.memory_mib {
        return Verdict::Never(format!("{} MiB asked for, this machine has {} MiB", shape.memory_mib, host.memory_mib));
    }
    if promised.sandboxes >= SANDBOXES_MAX {
        return Verdict::Full(format!("{SANDBOXES_MAX} sandboxes run already"));
    }
    let capacity = capacity_mib(host);
    if promised.memory_mib + shape.memory_mib > capacity {
        return Verdict::Full(format!("{} of {capacity} MiB of guest memory are promised", promised.memory_mib));
    }
    if host.memory_free_mib < MEMORY_FREE_MIN_MIB {
        return Verdict::Full(format!(
            "{} MiB of memory are free, {MEMORY_FREE_MIN_MIB} are needed",
            host.memory_free_mib
        ));
    }
    if host.disk_free_mib < DISK_FREE_MIN_MIB {
        return Verdict::Full(format!("{} MiB of disk are free, {DISK_FREE_MIN_MIB} are needed", host.disk_free_mib));
    }
    Verdict::Admit
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Host = Host { memory_mib: 1000, memory_free_mib: 900, disk_free_mib: 10_000 };
    const SMALL: Shape = Shape { vcpus: 1, memory_mib: 256 };

    #[test]
    fn room_is_promised_up_to_the_overcommit() {
        let promised = |memory_mib| Promised { sandboxes: 1, memory_mib };
        assert_eq!(admit(&HOST, &promised(4000 - 256), SMALL), Verdict::Admit);
        assert!(matches!(admit(&HOST, &promised(4000 - 255), SMALL), Verdict::Full(_)));
    }

    #[test]
    fn what_never_fits_is_refused_and_what_does_not_fit_now_waits() {
        let none = Promised::default();
        assert!(matches!(admit(&HOST, &none, Shape { vcpus: 1, memory_mib: 1001 }), Verdict::Never(_)));
        assert!(matches!(admit(&Host { memory_free_mib: 10, ..HOST }, &none, SMALL), Verdict::Full(_)));
        assert!(matches!(admit(&Host { disk_free_mib: 10, ..HOST }, &none, SMALL), Verdict::Full(_)));
        assert!(matches!(admit(&HOST, &Promised { sandboxes: SANDBOXES_MAX, memory_mib: 0 }, SMALL), Verdict::Full(_)));
    }
}
