//! What the host says about itself.

use crate::admit::Host;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Wall clock, milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Names this life of the host: another after each of its starts.
pub(crate) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// Waits for a task. A runtime that is being shut down cancels tasks in any order: nobody may take that for a failure, or a sandbox that
/// outlives this process would be ended for it.
pub(crate) async fn joined<T>(task: tokio::task::JoinHandle<T>) -> T {
    match task.await {
        Ok(value) => value,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await,
        },
    }
}

/// Memory and disk, as the kernel tells now. What cannot be read counts as none.
pub(crate) fn measure(data_dir: &Path) -> Host {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let disk = rustix::fs::statvfs(data_dir).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize) >> 20);
    Host {
        memory_mib: meminfo_kib(&meminfo, "MemTotal") >> 10,
        memory_free_mib: meminfo_kib(&meminfo, "MemAvailable") >> 10,
        disk_free_mib: disk,
    }
}

fn meminfo_kib(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_memory_and_disk() {
        let host = measure(Path::new("/"));
        assert!(host.memory_mib > 0 && host.memory_free_mib > 0 && host.disk_free_mib > 0);
    }
}
