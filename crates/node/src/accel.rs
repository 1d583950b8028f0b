//! Hardware virtualization or software emulation? `/dev/kvm` that opens proves nothing: boot the real guest kernel once, with a deadline.

use crate::ended::write_whole;
use crate::template::Devices;
use std::path::Path;
use std::time::Duration;
use warren_model::Shape;
use warren_proto::shim::{Accel, Machine};
use warren_vmm::Memory;

/// With working hardware virtualization the guest is up in well under a second.
const PROBE_WAIT: Duration = Duration::from_secs(8);
const PROBE_SHAPE: Shape = Shape { vcpus: 1, memory_mib: 256 };
const CACHE_FILE: &str = "accel.json";

/// What the operator asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccelChoice {
    /// Probe once, then remember.
    #[default]
    Auto,
    /// Hardware virtualization, or refuse to start.
    Kvm,
    /// Software emulation.
    Tcg,
}

/// What was found out, and for which kernel, QEMU and host.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Verdict {
    /// The accelerator to use.
    pub accel: Accel,
    /// Why, for people.
    pub why: String,
    /// Kernel, QEMU and CPU that the verdict holds for.
    pub key: String,
}

/// The verdict that an earlier start left in `data_dir`.
pub fn cached(data_dir: &Path) -> Option<Verdict> {
    serde_json::from_slice(&std::fs::read(data_dir.join(CACHE_FILE)).ok()?).ok()
}

/// Decides, by a probe if need be. `scratch` is a folder that may be filled.
pub(crate) async fn decide(
    choice: AccelChoice,
    data_dir: &Path,
    machine: &Machine,
    assets_key: &str,
) -> Result<Verdict, String> {
    let key = format!("{assets_key} {} {}", qemu_version(&machine.qemu), cpu_model());
    let verdict = |accel, why: &str| Verdict { accel, why: why.to_owned(), key: key.clone() };
    match choice {
        AccelChoice::Tcg => return Ok(verdict(Accel::Tcg, "asked for")),
        AccelChoice::Kvm => {
            return probe(data_dir, machine)
                .await
                .map(|()| verdict(Accel::Kvm, "asked for, and the guest kernel boots"))
                .map_err(|problem| {
                    format!(
                        "hardware virtualization was asked for, but the guest kernel does not boot with it: {problem}"
                    )
                });
        }
        AccelChoice::Auto => {}
    }
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        return Ok(verdict(Accel::Tcg, &format!("/dev/kvm cannot be used: {error}")));
    }
    if let Some(known) = cached(data_dir).filter(|v| v.key == key) {
        return Ok(known);
    }
    let found = match probe(data_dir, machine).await {
        Ok(()) => verdict(Accel::Kvm, "the guest kernel boots with it"),
        Err(problem) => {
            let first = problem.lines().next().unwrap_or("no reason given").to_owned();
            verdict(Accel::Tcg, &format!("/dev/kvm opens, but the guest kernel does not boot with it: {first}"))
        }
    };
    let bytes = serde_json::to_vec_pretty(&found).map_err(|e| e.to_string())?;
    write_whole(&data_dir.join(CACHE_FILE), &bytes).map_err(|e| format!("write {CACHE_FILE}: {e}"))?;
    Ok(found)
}

/// Boots the real guest kernel with KVM, at most [`PROBE_WAIT`].
async fn probe(data_dir: &Path, machine: &Machine) -> Result<(), String> {
    let dir = data_dir.join("probe");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let machine = Machine { accel: Accel::Kvm, ..machine.clone() };
    let devices = Devices::of(PROBE_SHAPE);
    let booted = crate::template::boot(&machine, devices, &dir, Memory::Anonymous, PROBE_WAIT);
    let outcome = match tokio::time::timeout(PROBE_WAIT, booted).await {
        Ok(Ok(mut vm)) => {
            vm.kill().await;
            Ok(())
        }
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err(format!("it did not boot within {PROBE_WAIT:?}")),
    };
    let _ = std::fs::remove_dir_all(&dir);
    outcome
}

/// First line of `qemu --version`.
pub(crate) fn qemu_version(qemu: &Path) -> String {
    let output = std::process::Command::new(qemu).arg("--version").output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn cpu_model() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
    model.map_or_else(String::new, |(_, name)| name.trim().to_owned())
}
