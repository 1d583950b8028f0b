use super::*;
use crate::ext4::Target;
use crate::ext4::grow::ReadAt;
use std::process::Command;

fn open(dir: &Path) -> Chunks {
    Chunks::open(&dir.join("chunks")).unwrap()
}

fn noise(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(step).collect()
}

fn disk(chunks: &Chunks, size: u64, writes: &[(u64, &[u8])]) -> Manifest {
    let mut writer = chunks.writer();
    writes.iter().for_each(|(at, bytes)| writer.write_at(*at, bytes).unwrap());
    writer.end(size).unwrap();
    writer.commit().unwrap()
}

fn read_all(disk: &Disk) -> Vec<u8> {
    let mut out = vec![0; disk.size() as usize];
    let mut at = 0;
    while at < out.len() {
        match disk.read_at(&mut out[at..], at as u64).unwrap() {
            0 => break,
            n => at += n,
        }
    }
    out
}

fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    path.metadata().unwrap().blocks() * 512
}

#[test]
fn qemu_reads_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let chunks = open(dir.path());
    // A disk before it, so that nothing lies at the start.
    disk(&chunks, 1 << 20, &[(0, &noise(9, 200_000))]);
    let (a, b) = (noise(1, 300_000), noise(2, 5000));
    let size = (1 << 30) + 4096;
    let manifest = disk(&chunks, size, &[(65_000, &a), (1024, &b), (size - 5000, &b), (700 << 20, &a)]);
    let made = chunks.disk(manifest.header, manifest.size);
    let mut expected = vec![0; size as usize];
    for (at, bytes) in [(65_000, &a), (1024, &b), (size as usize - 5000, &b), (700 << 20, &a)] {
        expected[at..at + bytes.len()].copy_from_slice(bytes);
    }
    assert!(read_all(&made) == expected);
    let (exported, converted) = (dir.path().join("exported"), dir.path().join("converted"));
    made.export(&exported).unwrap();
    assert!(std::fs::read(&exported).unwrap() == expected);
    assert!(allocated(&exported) < 2 << 20);
    let options = format!(
        "driver=qcow2,file.driver=raw,file.offset={},file.file.driver=file,file.file.filename={}",
        made.offset(),
        made.file().display()
    );
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "--image-opts", "-O", "raw", &options]).arg(&converted);
    assert!(convert.status().unwrap().success());
    assert!(std::fs::read(&converted).unwrap() == expected);
}

#[test]
fn equal_chunks_are_kept_once_and_go_with_the_last_disk() {
    let dir = tempfile::tempdir().unwrap();
    let chunks = open(dir.path());
    let (shared, own) = (noise(1, 40 * CHUNK), noise(2, CHUNK));
    let one = disk(&chunks, 64 << 20, &[(0, &shared)]);
    let alone = chunks.bytes();
    let two = disk(&chunks, 64 << 20, &[(CHUNK as u64 * 3, &shared), (60 << 20, &own)]);
    assert_eq!(chunks.bytes(), alone + CHUNK as u64);
    assert_eq!(chunks.trial().release(&two), CHUNK as u64);
    let mut trial = chunks.trial();
    assert_eq!((trial.release(&one), trial.release(&two)), (0, chunks.bytes()));
    chunks.release(&one);
    let left = chunks.disk(two.header, two.size);
    assert!(read_all(&left)[3 * CHUNK..43 * CHUNK] == shared);
    chunks.release(&two);
    assert_eq!(chunks.bytes(), 0);
    assert_eq!(allocated(chunks.path()), 0);
}

#[test]
fn a_disk_that_is_not_committed_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let chunks = open(dir.path());
    let mut writer = chunks.writer();
    writer.write_at(0, &noise(1, 10 * CHUNK + 7)).unwrap();
    assert_eq!(chunks.bytes(), 10 * CHUNK as u64);
    drop(writer);
    assert_eq!((chunks.bytes(), allocated(chunks.path())), (0, 0));
}

#[test]
fn what_is_written_over_or_forgotten_goes() {
    let dir = tempfile::tempdir().unwrap();
    let chunks = open(dir.path());
    let mut writer = chunks.writer();
    writer.write_at(0, &noise(1, 10 * CHUNK)).unwrap();
    writer.write_at(2 * CHUNK as u64, &[0; 2 * CHUNK]).unwrap();
    writer.write_at(5 * CHUNK as u64 + 100, b"late").unwrap();
    writer.forget(7 * CHUNK as u64 - 1, CHUNK as u64 + 2);
    writer.end(1 << 20).unwrap();
    let manifest = writer.commit().unwrap();
    let indexes: Vec<u32> = manifest.parts.iter().map(|part| part.index).collect();
    assert_eq!(indexes, [0, 1, 4, 5, 6, 8, 9]);
    let bytes = read_all(&chunks.disk(manifest.header, manifest.size));
    assert_eq!(&bytes[5 * CHUNK + 100..5 * CHUNK + 104], b"late");
    assert!(bytes[5 * CHUNK..5 * CHUNK + 100] == noise(1, 10 * CHUNK)[5 * CHUNK..5 * CHUNK + 100]);
}

#[test]
fn many_chunks_may_be_half_written_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let chunks = open(dir.path());
    let mut writer = chunks.writer();
    for round in 0..2u64 {
        for index in 0..300 {
            writer.write_at(index * CHUNK as u64 + round * 10, &[7, index as u8]).unwrap();
        }
    }
    writer.end(300 * CHUNK as u64).unwrap();
    let manifest = writer.commit().unwrap();
    let bytes = read_all(&chunks.disk(manifest.header, manifest.size));
    for index in 0..300 {
        let chunk = &bytes[index * CHUNK..][..12];
        assert_eq!((&chunk[..2], &chunk[10..]), (&[7, index as u8][..], &[7, index as u8][..]));
    }
}

#[test]
fn a_new_start_keeps_what_manifests_name_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let content = noise(1, 9 * CHUNK);
    let (kept, lost) = {
        let chunks = open(dir.path());
        let lost = disk(&chunks, 1 << 20, &[(0, &noise(2, 5 * CHUNK))]);
        (disk(&chunks, 1 << 20, &[(CHUNK as u64, &content)]), lost)
    };
    let chunks = open(dir.path());
    assert!(chunks.adopt(&kept, false));
    assert!(!chunks.adopt(&kept, false), "its tables are taken");
    let other = Manifest { header: kept.header + 1, tables: vec![kept.parts[0].slot], parts: Vec::new(), size: 1 };
    assert!(!chunks.adopt(&other, false), "a table in the slot of a chunk");
    let before = allocated(chunks.path());
    assert!(chunks.sweep().unwrap() >= 5 * CHUNK as u64);
    assert!(allocated(chunks.path()) <= before - 5 * CHUNK as u64);
    assert!(read_all(&chunks.disk(kept.header, kept.size))[CHUNK..10 * CHUNK] == content);
    // Freed slots hold zeroes again and are used.
    let again = disk(&chunks, 1 << 20, &[(0, &noise(3, 5 * CHUNK))]);
    assert!(again.parts.iter().any(|part| lost.parts.iter().any(|old| old.slot == part.slot)));
    assert!(read_all(&chunks.disk(again.header, again.size))[..5 * CHUNK] == noise(3, 5 * CHUNK));
}

#[test]
fn writers_at_the_same_time_share() {
    let dir = tempfile::tempdir().unwrap();
    let chunks = open(dir.path());
    let content = noise(1, 60 * CHUNK);
    let made: Vec<Manifest> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| disk(&chunks, 4 << 20, &[(0, &content)]))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(chunks.bytes(), 60 * CHUNK as u64);
    for manifest in &made {
        assert!(read_all(&chunks.disk(manifest.header, manifest.size))[..60 * CHUNK] == content);
    }
    made.iter().for_each(|manifest| chunks.release(manifest));
    assert_eq!((chunks.bytes(), allocated(chunks.path())), (0, 0));
}

#[tokio::test]
async fn chunks_may_be_named_before_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let content = noise(1, 4 * CHUNK);
    let ids: Vec<ChunkId> = content.as_chunks::<CHUNK>().0.iter().map(ChunkId::of).collect();
    let chunk = |n: usize| content.as_chunks::<CHUNK>().0[n];
    let manifest = {
        let chunks = open(dir.path());
        disk(&chunks, 1 << 20, &[(0, &chunk(0))]);
        let manifest = chunks.assemble(1 << 20, (1..5).zip(ids.iter().copied())).unwrap();
        assert_eq!([0, 1, 2, 3].map(|n| chunks.is_here(&ids[n])), [true, false, false, false]);
        assert!(!chunks.arrived(&ids[1], &chunk(2)).unwrap(), "not what its name says");
        let waits = chunks.until_here(&ids[1]);
        let comes = async { assert!(chunks.arrived(&ids[1], &chunk(1)).unwrap()) };
        tokio::join!(waits, comes);
        // A disk that is written brings an awaited chunk, too.
        let written = disk(&chunks, 1 << 20, &[(0, &chunk(2))]);
        assert_eq!(written.parts[0].slot, manifest.parts[2].slot);
        assert!(chunks.is_here(&ids[2]));
        manifest
    };
    let chunks = open(dir.path());
    assert!(chunks.adopt(&manifest, true));
    chunks.sweep().unwrap();
    assert_eq!([0, 1, 2, 3].map(|n| chunks.is_here(&ids[n])), [true, true, true, false]);
    assert!(chunks.arrived(&ids[3], &chunk(3)).unwrap());
    assert!(read_all(&chunks.disk(manifest.header, manifest.size))[CHUNK..5 * CHUNK] == content);
    chunks.release(&manifest);
    assert!(chunks.arrived(&ids[3], &chunk(3)).unwrap(), "nobody wants it any more");
    assert_eq!((chunks.bytes(), allocated(chunks.path())), (0, 0));
}
