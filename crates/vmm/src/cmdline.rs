//! From a machine's description to QEMU's argv. Pure.

use crate::disk::{overlay_node, read_only_node};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use warren_model::Shape;
use warren_proto::guest::{ROOT_DISK, exchange};
use warren_proto::shim::{Accel, DiskBase, ImageDisk, Machine};

/// Descriptors that QEMU inherits, by number.
pub(crate) mod fd {
    /// One end of a socket pair that speaks QMP.
    pub(crate) const QMP: i32 = 3;
    /// One end of a socket pair that carries the guest's network frames.
    pub(crate) const NET: i32 = 4;
    /// Memory of the owner that the guest sees as a disk.
    pub(crate) const EXCHANGE: i32 = 5;
    /// The file that memory starts from, open for reading.
    pub(crate) const MEMORY: i32 = 6;
}

/// The node that the guest's root disk is at the start.
pub(crate) const ROOT_NODE: &str = ROOT_DISK;

/// Bytes of translated code that one emulated VM may keep, MiB. QEMU's own default grows with guest memory.
const TRANSLATION_CACHE_MIB: u32 = 128;

/// Where guest memory comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// The file is the memory: what the guest writes is in it. For making a template.
    Shared(PathBuf),
    /// The file is where memory starts; what the guest writes stays in this process.
    Private(PathBuf),
    /// Starts empty, in this process alone.
    Anonymous,
}

/// Disks of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFiles {
    /// qcow2 overlay that becomes the guest's root.
    pub root_overlay: PathBuf,
    /// What it lies on.
    pub root_base: DiskBase,
    /// Volumes, one a disk of its own.
    pub volumes: Vec<VolumeFile>,
    /// Guest memory.
    pub memory: Memory,
}

/// A volume's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFile {
    /// The disk's serial number, and the name of its node in QEMU.
    pub disk: String,
    /// Its qcow2 overlay.
    pub overlay: PathBuf,
    /// What that lies on.
    pub base: DiskBase,
    /// QEMU refuses to write to it, whatever the guest does.
    pub read_only: bool,
}

/// Everything that decides QEMU's argv.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmConfig {
    /// What all machines of this node share.
    pub machine: Machine,
    /// vCPUs and memory.
    pub shape: Shape,
    /// Disks and memory of this one.
    pub files: MachineFiles,
    /// Waits for a device state instead of booting.
    pub incoming: bool,
}

/// The kernel's command line. The root is mounted by the agent, so nothing in it names a disk.
fn kernel_cmdline(machine: &Machine) -> String {
    let mut line =
        "console=ttyS0 quiet reboot=t panic=-1 random.trust_cpu=on rcupdate.rcu_expedited=1 no_timer_check".to_owned();
    if machine.accel == Accel::Tcg {
        // Emulated code cannot be mis-speculated into, and each mitigation is instructions to translate.
        // Translations are found by virtual address: with random ones, each start of a program translates it and its libraries
        // anew, which is four fifths of the time that `bash -c true` takes.
        line.push_str(" mitigations=off norandmaps tsc=reliable init_on_alloc=0 audit=0");
        // The emulated counter is the host's. Without its rate the kernel measures it against a timer that a busy host delays.
        if let Some(khz) = machine.tsc_khz {
            line.push_str(&format!(" tsc_early_khz={khz}"));
        }
    }
    line
}

/// `key=value` with commas of the value doubled, as QEMU's option syntax wants.
fn escaped(path: &Path) -> OsString {
    let text = path.as_os_str().to_string_lossy().replace(',', ",,");
    OsString::from(text)
}

fn joined(parts: &[&dyn AsRef<std::ffi::OsStr>]) -> OsString {
    let mut out = OsString::new();
    for part in parts {
        out.push(part);
    }
    out
}

/// QEMU's arguments, without the program.
pub(crate) fn argv(config: &VmConfig) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::with_capacity(64);
    let memory_mib = config.shape.memory_mib.to_string();
    let (machine, shape) = (&config.machine, config.shape);
    let mut add = |flag: &str, value: OsString| {
        out.push(flag.into());
        out.push(value);
    };

    // A second interrupt controller gives 24 places for devices instead of 8.
    let more_places = if config.files.volumes.is_empty() { "" } else { ",ioapic2=on" };
    add("-M", format!("microvm,x-option-roms=off,rtc=on,acpi=on,isa-serial=on{more_places},memory-backend=ram").into());
    // Without ERMS the guest copies and clears memory by eight bytes a turn; the emulator's string moves go byte by byte.
    let (accel, cpu) = match machine.accel {
        Accel::Kvm => ("kvm".to_owned(), "host"),
        Accel::Tcg => (format!("tcg,tb-size={TRANSLATION_CACHE_MIB}"), "max,-la57,-erms"),
    };
    add("-accel", accel.into());
    add("-cpu", cpu.into());
    add("-smp", shape.vcpus.to_string().into());
    add("-m", format!("{memory_mib}M").into());
    let size = format!(",id=ram,size={memory_mib}M");
    let backend = match &config.files.memory {
        Memory::Shared(file) => joined(&[&"memory-backend-file", &size, &",share=on,mem-path=", &escaped(file)]),
        // By its descriptor: the owner can open it where QEMU's rights or its view of the file system do not reach.
        Memory::Private(_) => {
            format!("memory-backend-file{size},share=off,mem-path=/proc/self/fd/{}", fd::MEMORY).into()
        }
        Memory::Anonymous => joined(&[&"memory-backend-ram", &size]),
    };
    add("-object", backend);
    add("-kernel", machine.kernel.clone().into());
    add("-initrd", machine.initramfs.clone().into());
    add("-append", kernel_cmdline(machine).into());
    // The guest's console goes to a pipe that the owner drains into a bounded ring: a guest cannot fill the host's disk.
    add("-chardev", "stdio,id=console,signal=off".into());
    add("-serial", "chardev:console".into());
    add(
        "-blockdev",
        joined(&[
            &"driver=raw,node-name=tools,read-only=on,file.driver=file,file.locking=off,file.filename=",
            &escaped(&machine.tools_disk),
        ]),
    );
    add("-device", "virtio-blk-device,drive=tools,serial=tools".into());
    let root = overlay_node(ROOT_NODE, &config.files.root_overlay, &config.files.root_base);
    add("-blockdev", root.to_string().into());
    add("-device", format!("virtio-blk-device,drive={ROOT_NODE},serial={ROOT_DISK},num-queues=1").into());
    add("-add-fd", format!("fd={},set=1,opaque=exchange", fd::EXCHANGE).into());
    add(
        "-blockdev",
        "driver=raw,node-name=exchange,file.driver=file,file.locking=off,file.filename=/dev/fdset/1".into(),
    );
    add("-device", format!("virtio-blk-device,drive=exchange,serial={},num-queues=1", exchange::SERIAL).into());
    add("-device", "virtio-serial-device,max_ports=2".into());
    add("-chardev", format!("socket,id=agent,path={},server=on,wait=off", crate::GUEST_SOCKET).into());
    add("-device", "virtserialport,chardev=agent,name=agent,nr=1".into());
    add("-netdev", format!("stream,id=net,addr.type=fd,addr.str={}", fd::NET).into());
    add("-device", "virtio-net-device,netdev=net,mac=52:54:00:12:34:56".into());
    add("-object", "rng-builtin,id=rng".into());
    add("-device", "virtio-rng-device,rng=rng".into());
    for VolumeFile { disk, overlay, base, read_only } in &config.files.volumes {
        let node = if *read_only { read_only_node(disk, overlay, base) } else { overlay_node(disk, overlay, base) };
        add("-blockdev", node.to_string().into());
        add("-device", format!("virtio-blk-device,drive={disk},serial={disk},num-queues=1").into());
    }
    add("-chardev", format!("socket,id=qmp,fd={}", fd::QMP).into());
    add("-mon", "chardev=qmp,mode=control".into());
    add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny".into());
    // Memory is never part of a device state, and the configuration that would be is that of our own argv.
    add("-global", "migration.send-configuration=off".into());
    if config.incoming {
        add("-incoming", "defer".into());
    }
    for flag in ["-nodefaults", "-no-user-config", "-nographic", "-no-reboot"] {
        out.push(flag.into());
    }
    out
}

/// Everything about the machine that a saved device state depends on, besides the shape and what is in its files: for a cache's key.
///
/// The counter's rate is measured at each start and differs in its last digits, so it counts in steps of [`RATE_STEP_KHZ`].
pub fn machine_identity(machine: &Machine) -> String {
    let nowhere = PathBuf::new;
    let machine = Machine {
        qemu: nowhere(),
        kernel: nowhere(),
        initramfs: nowhere(),
        tools_disk: nowhere(),
        accel: machine.accel,
        tsc_khz: machine.tsc_khz.map(|khz| (khz + RATE_STEP_KHZ / 2) / RATE_STEP_KHZ * RATE_STEP_KHZ),
    };
    let root_base = DiskBase { image: ImageDisk::Raw(PathBuf::new()), layers: Vec::new() };
    // With a volume, so that how volumes are attached counts too.
    let (disk, overlay, base) = (String::new(), PathBuf::new(), root_base.clone());
    let volumes = vec![VolumeFile { disk, overlay, base, read_only: false }];
    let files = MachineFiles { root_overlay: PathBuf::new(), root_base, volumes, memory: Memory::Anonymous };
    let config = VmConfig { machine, shape: Shape { vcpus: 1, memory_mib: 1 }, files, incoming: false };
    argv(&config).join(std::ffi::OsStr::new("\n")).to_string_lossy().into_owned()
}

/// Nominal rates are multiples of it, so a measured one is never near the border of a step.
const RATE_STEP_KHZ: u64 = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn config(memory: Memory, incoming: bool) -> VmConfig {
        let machine = Machine {
            qemu: "/q".into(),
            accel: Accel::Tcg,
            kernel: "/k".into(),
            initramfs: "/i".into(),
            tools_disk: "/t,x".into(),
            tsc_khz: Some(2_000_000),
        };
        let root_base = DiskBase { image: ImageDisk::Raw("/i".into()), layers: Vec::new() };
        let files = MachineFiles { root_overlay: "disk.qcow2".into(), root_base, volumes: Vec::new(), memory };
        VmConfig { machine, shape: Shape { vcpus: 2, memory_mib: 512 }, files, incoming }
    }

    fn text(config: &VmConfig) -> String {
        argv(config).iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_restored_machine_never_writes_its_template() {
        let line = text(&config(Memory::Private("base.mem".into()), true));
        assert!(line.contains("size=512M,share=off,mem-path=/proc/self/fd/6"), "{line}");
        assert!(line.contains("-incoming defer"));
    }

    #[test]
    fn a_template_is_written_through_and_boots() {
        let line = text(&config(Memory::Shared("base.mem".into()), false));
        assert!(line.contains("share=on"));
        assert!(!line.contains("-incoming"));
    }

    #[test]
    fn commas_cannot_inject_options() {
        assert!(text(&config(Memory::Anonymous, false)).contains("file.filename=/t,,x"));
    }

    #[test]
    fn volumes_are_disks_behind_all_other_devices_and_machines_without_are_as_they_were() {
        let mut config = config(Memory::Anonymous, false);
        assert!(!text(&config).contains("ioapic2"));
        let base = DiskBase { image: ImageDisk::Raw("/i".into()), layers: Vec::new() };
        let volume = |n, read_only| VolumeFile {
            disk: format!("volume-{n}"),
            overlay: format!("v,{n}").into(),
            base: base.clone(),
            read_only,
        };
        config.files.volumes = vec![volume(0, false), volume(1, true)];
        let line = text(&config);
        assert!(line.contains("ioapic2=on"), "{line}");
        let places = ["virtio-rng-device", "serial=volume-0", "serial=volume-1"].map(|word| line.find(word).unwrap());
        assert!(places.is_sorted(), "{line}");
    }

    #[test]
    fn an_emulated_guest_is_told_the_rate_of_its_counter() {
        let mut config = config(Memory::Anonymous, false);
        assert!(text(&config).contains("tsc_early_khz=2000000"));
        config.machine.accel = Accel::Kvm;
        assert!(!text(&config).contains("tsc_early_khz"));
    }

    #[test]
    fn the_identity_is_the_argv_but_for_the_noise_of_a_measurement() {
        let known = config(Memory::Anonymous, false).machine;
        let at = |khz| machine_identity(&Machine { tsc_khz: Some(khz), ..known.clone() });
        assert_eq!(at(2_449_871), at(2_450_114));
        assert_ne!(at(2_450_000), at(2_600_000));
        assert!(at(2_450_000).contains("norandmaps"));
        assert_ne!(at(2_000_000), machine_identity(&Machine { accel: Accel::Kvm, ..known.clone() }));
        let moved = Machine { kernel: "/other/k".into(), tsc_khz: Some(2_000_000), ..known.clone() };
        assert_eq!(at(2_000_000), machine_identity(&moved));
    }

    #[test]
    fn qemu_is_confined() {
        assert!(
            text(&config(Memory::Anonymous, false))
                .contains("-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny")
        );
    }
}
