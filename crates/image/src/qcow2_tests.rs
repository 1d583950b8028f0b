use super::*;
use proptest::prelude::*;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

const DISK: u64 = 1 << 30;

fn run(program: &str, words: &[&str], file: &Path) {
    let done = Command::new(program).args(words).arg(file).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A layer as QEMU leaves it: 64 KiB of 7 at 0 and 1 GiB - 64 KiB, 4 KiB of 9 at 1 MiB, zeroes at 2 MiB.
static WRITTEN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("layer.qcow2");
    let made = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&file).arg(DISK.to_string()).status();
    assert!(made.unwrap().success());
    let last = format!("write -P 7 {} 64k", DISK - 65_536);
    let commands = ["write -P 7 0 64k", &last, "write -P 9 1M 4k", "write -z 2M 64k"];
    let words: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
    run("qemu-io", &words, &file);
    std::fs::read(&file).unwrap()
});

fn clusters(layer: &mut Layer<&[u8]>) -> Result<Vec<Cluster>, LayerError> {
    let mut all = Vec::new();
    for number in 0..layer.tables() {
        all.extend(layer.table(number)?.unwrap_or_else(|| vec![Cluster::Absent; ENTRIES]));
    }
    Ok(all)
}

#[test]
fn what_qemu_wrote_is_found() {
    let bytes = WRITTEN.clone();
    let mut layer = Layer::open(&bytes[..]).unwrap();
    assert_eq!((layer.size(), layer.tables()), (DISK, 2));
    let all = clusters(&mut layer).unwrap();
    let held: Vec<usize> = (0..all.len()).filter(|at| all[*at] != Cluster::Absent).collect();
    assert_eq!(held, [0, 16, 32, DISK as usize / CHUNK - 1]);
    assert_eq!(all[32], Cluster::Zero);
    let byte = |index: usize, within: usize| match all[index] {
        Cluster::Data(at) => layer.read(at).unwrap()[within],
        other => panic!("{other:?}"),
    };
    assert_eq!([byte(0, 0), byte(held[3], CHUNK - 1), byte(16, 0), byte(16, 4096)], [7, 7, 9, 0]);
}

#[test]
fn what_no_vmm_of_ours_leaves_is_refused() {
    let bytes = WRITTEN.clone();
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = bytes.clone();
        change(&mut changed);
        let opened = Layer::open(&changed[..]).and_then(|mut layer| clusters(&mut layer));
        assert!(matches!(opened, Err(LayerError::Malformed(_))), "{opened:?}");
    };
    let first_level = u64::from_be_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let table = (u64::from_be_bytes(bytes[first_level..first_level + 8].try_into().unwrap()) & OFFSET_MASK) as usize;
    refused(&|b| b[0] = 0);
    refused(&|b| b[7] = 2);
    refused(&|b| b[23] = 12);
    refused(&|b| b[24] = 1);
    refused(&|b| b[31] = 1);
    refused(&|b| b[35] = 1);
    refused(&|b| b[39] = 1);
    refused(&|b| b[63] = 1);
    refused(&|b| b[79] = 4);
    refused(&|b| b[40] = 1);
    refused(&|b| b[first_level] |= 0x40);
    refused(&|b| b[first_level + 7] |= 1);
    refused(&|b| b[first_level + 1] = 0x10);
    refused(&|b| b[table] |= 0x40);
    refused(&|b| b[table + 2] = 1);
    refused(&|b| b[table + 6] |= 2);
    refused(&|b| {
        let entry: [u8; 8] = b[table..table + 8].try_into().unwrap();
        b[table + 8..table + 16].copy_from_slice(&entry);
    });
    refused(&|b| b.truncate(300));
    refused(&|b| b.truncate(20));
}

proptest! {
    #[test]
    fn any_damage_is_survived(at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>(), end in any::<bool>()) {
        let mut bytes = WRITTEN.clone();
        let at = at.index(bytes.len().min(CHUNK * 5));
        bytes[at] = value;
        if end { bytes.truncate(cut.index(bytes.len())); }
        if let Ok(mut layer) = Layer::open(&bytes[..])
            && let Ok(all) = clusters(&mut layer)
        {
            for cluster in all {
                if let Cluster::Data(at) = cluster { layer.read(at).unwrap(); }
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Layer::open(&bytes[..]).is_ok();
    }
}
