//! One image with everything that layers can hold, converted and read back through the kernel.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use support::image::{Packing, TestImage};
use support::mount::Mounted;
use support::{PLAIN_MTIME, TarFile, fsck, root_tar};
use warren_image::{Config, Image, Store};

const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// `user::rw-, user:1000:r--, group::r--, mask::r--, other::---` as `getxattr` gives it.
const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 4, 0,
    255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

fn lower() -> Vec<TarFile> {
    let long = vec![b'n'; 255];
    vec![
        TarFile::dir("./").mode(0o755),
        TarFile::dir("bin/"),
        TarFile::file("bin/su", b"suid").mode(0o4755),
        TarFile::file("bin/ping", b"cap").mode(0o755).xattr("security.capability", &CAPABILITY),
        TarFile::file("acl", b"acl").mode(0o640).xattr("system.posix_acl_access", &ACL),
        TarFile::file("attrs", b"x").owner(70_000, 80_000).xattr("user.small", b"v").xattr("user.large", &[9; 2000]),
        TarFile { device: (1, 3), mode: 0o666, ..TarFile::new("dev/null", b'3') },
        TarFile { device: (259, 70_000), ..TarFile::new("dev/big", b'4') },
        TarFile::new("fifo", b'6').mode(0o600),
        TarFile::file(b"raw-\xff\xfe\n", b"raw"),
        TarFile::file(&long, b"long"),
        TarFile::symlink("short-link", "bin/su"),
        TarFile::symlink("long-link", "t".repeat(300)),
        TarFile::symlink("edge-59", "e".repeat(59)),
        TarFile::symlink("edge-60", "e".repeat(60)),
        TarFile::file("shared", b"shared content"),
        TarFile::hard_link("shared-2", "shared"),
        TarFile { mtime: "-5.25".to_owned(), ..TarFile::file("old", b"") },
        TarFile { mtime: "4294967296.5".to_owned(), ..TarFile::file("new", b"") },
        TarFile {
            data: [vec![1; 4096], vec![2; 100]].concat(),
            sparse: Some((vec![(1 << 20, 4096), ((3 << 20) + 50, 100)], 5 << 20)),
            ..TarFile::new("sparse", b'0')
        },
        TarFile::dir("opaque/"),
        TarFile::file("opaque/below", b"below"),
        TarFile::file("gone", b"gone"),
        TarFile::file("gone-dir/a/b", b"gone"),
        TarFile::file("becomes-dir", b"file"),
        TarFile::file("becomes-file/x", b"x"),
        TarFile::file("retyped", b"file"),
        TarFile::dir("sticky/").mode(0o1777).owner(5, 6),
    ]
}

fn upper() -> Vec<TarFile> {
    vec![
        TarFile::new("opaque/.wh..wh..opq", b'0'),
        TarFile::file("opaque/above", b"above"),
        TarFile::new(".wh.gone", b'0'),
        TarFile::new(".wh.gone-dir", b'0'),
        TarFile::dir("becomes-dir/"),
        TarFile::file("becomes-dir/inside", b"inside"),
        TarFile::file("becomes-file", b"now a file"),
        TarFile::new(".wh.retyped", b'0'),
        TarFile::symlink("retyped", "elsewhere"),
        TarFile::hard_link("across", "shared"),
        TarFile::file("sticky/in", b"in"),
        TarFile::file("made/up/parents", b"x"),
    ]
}

async fn import(dir: &Path, image: &TestImage) -> (Store, Image) {
    let layout = dir.join("layout");
    image.write_layout(&layout);
    let store = Store::open(&dir.join("images"), Config::default()).unwrap();
    let image = store.import(layout, "torture:1").await.unwrap();
    fsck(&image.disk);
    (store, image)
}

#[tokio::test]
async fn everything_arrives_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let image = TestImage::new(&[(lower(), Packing::Gzip), (upper(), Packing::Zstd)]);
    let (_store, image) = import(dir.path(), &image).await;
    assert_eq!(image.record.env["LANG"], "C");
    assert_eq!(image.record.workdir.as_deref(), Some("/work"));
    assert_eq!((image.record.entrypoint.len(), image.record.cmd.len()), (1, 2));
    let disk = Mounted::new(&image.disk);

    assert_eq!(disk.seen("bin/su").mode, 0o4755);
    assert_eq!(disk.xattrs("bin/ping")["security.capability"], CAPABILITY);
    assert_eq!(disk.xattrs("acl")["system.posix_acl_access"], ACL);
    let attrs = disk.xattrs("attrs");
    assert_eq!((attrs["user.small"].as_slice(), attrs["user.large"].as_slice()), (&b"v"[..], &[9; 2000][..]));
    assert_eq!(disk.seen("attrs").owner, (70_000, 80_000));
    assert_eq!((disk.seen("dev/null").kind, disk.seen("dev/null").device), ("char", rustix::fs::makedev(1, 3)));
    assert_eq!((disk.seen("dev/big").kind, disk.seen("dev/big").device), ("block", rustix::fs::makedev(259, 70_000)));
    assert_eq!(disk.seen("fifo").kind, "fifo");
    assert_eq!(disk.read(b"raw-\xff\xfe\n"), b"raw");
    assert_eq!(disk.read([b'n'; 255]), b"long");
    assert_eq!(disk.link("short-link"), b"bin/su");
    for (name, len) in [("long-link", 300), ("edge-59", 59), ("edge-60", 60)] {
        assert_eq!((disk.link(name).len(), disk.seen(name).size), (len, len as u64));
    }
    assert_eq!(disk.seen("shared").mtime, (1_700_000_000, 123_456_789));
    assert_eq!(disk.seen("old").mtime, (-6, 750_000_000));
    assert_eq!(disk.seen("new").mtime, (4_294_967_296, 500_000_000));
    let sticky = disk.seen("sticky");
    assert_eq!((sticky.mode, sticky.owner, sticky.links), (0o1777, (5, 6), 2));
}

#[tokio::test]
async fn layers_change_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let image = TestImage::new(&[(lower(), Packing::Plain), (upper(), Packing::Gzip)]);
    let (_store, image) = import(dir.path(), &image).await;
    let disk = Mounted::new(&image.disk);
    assert_eq!(disk.names("opaque"), [b"above"]);
    assert!(!disk.exists("gone") && !disk.exists("gone-dir"));
    assert_eq!(disk.read("becomes-dir/inside"), b"inside");
    assert_eq!(disk.read("becomes-file"), b"now a file");
    assert_eq!(disk.link("retyped"), b"elsewhere");
    let shared = disk.seen("shared");
    assert_eq!((shared.links, shared.inode), (3, disk.seen("across").inode));
    assert_eq!(disk.read("sticky/in"), b"in");
    let parents = disk.seen("made/up");
    assert_eq!((parents.mode, parents.owner), (0o755, (0, 0)));
}

#[tokio::test]
async fn holes_stay_holes() {
    let dir = tempfile::tempdir().unwrap();
    let image = TestImage::new(&[(lower(), Packing::Plain)]);
    let (_store, image) = import(dir.path(), &image).await;
    let disk = Mounted::new(&image.disk);
    let mut expected = vec![0u8; 5 << 20];
    expected[1 << 20..(1 << 20) + 4096].fill(1);
    expected[(3 << 20) + 50..(3 << 20) + 150].fill(2);
    assert!(disk.read("sparse") == expected);
    assert_eq!(disk.seen("sparse").blocks, 2 * 8);
}

#[tokio::test]
async fn nothing_gets_out_of_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let up = format!("{}{}", "../".repeat(20), mark.display());
    let layer = vec![
        TarFile::symlink("out", "../".repeat(20)),
        TarFile::symlink("abs", mark.parent().unwrap().to_str().unwrap()),
        TarFile::file(format!("out{}", mark.display()), b"x"),
        TarFile::file("abs/mark", b"y"),
        TarFile::file(format!("/{up}"), b"z"),
    ];
    let (_store, image) = import(dir.path(), &TestImage::new(&[(layer, Packing::Plain)])).await;
    assert!(!mark.exists());
    let disk = Mounted::new(&image.disk);
    let inside = mark.to_str().unwrap().trim_start_matches('/');
    assert_eq!(disk.read(inside), b"z");
    for bad in [
        TarFile::file(&up, b"x"),
        TarFile::hard_link("passwd", "../../etc/passwd"),
        TarFile::hard_link("passwd", "/etc/passwd"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let tar = dir.path().join("bad.tar");
        std::fs::write(&tar, root_tar(&[bad])).unwrap();
        let store = Store::open(&dir.path().join("images"), Config::default()).unwrap();
        assert_eq!(store.import(tar, "bad:1").await.unwrap_err().code, "bad_content");
    }
}

#[tokio::test]
async fn a_hundred_thousand_small_files() {
    let dir = tempfile::tempdir().unwrap();
    let flat = (0..60_000).map(|i| TarFile::file(format!("flat/a-file-with-a-name-{i}"), b"tiny"));
    let deep = (0..40_000).map(|i| TarFile::file(format!("deep/{}/{}/{i}", i % 100, i % 1000), b""));
    let files = flat.chain(deep).map(|file| TarFile { mtime: PLAIN_MTIME.to_owned(), ..file });
    let tar = dir.path().join("small.tar");
    std::fs::write(&tar, root_tar(&files.collect::<Vec<_>>())).unwrap();
    let store = Store::open(&dir.path().join("images"), Config::default()).unwrap();
    let image = store.import(tar, "small:1").await.unwrap();
    fsck(&image.disk);
    let disk = Mounted::new(&image.disk);
    assert_eq!(disk.names("flat").len(), 60_000);
    // By name, so that the kernel walks the hash tree.
    for i in (0..60_000).step_by(7) {
        assert!(disk.exists(format!("flat/a-file-with-a-name-{i}")), "{i}");
    }
    assert!(!disk.exists("flat/a-file-with-a-name-x"));
    assert_eq!(disk.names("deep/7/107").len(), 40);
    assert_eq!(disk.seen("deep").links, 102);
}

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let small = support::mount::Tmpfs::new("size=16m");
    let noise: Vec<u8> = (0..8_000_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let tar = dir.path().join("large.tar");
    std::fs::write(&tar, root_tar(&[TarFile::file("noise", &noise)])).unwrap();
    let store = Store::open(&small.path().join("images"), Config::default()).unwrap();
    assert_eq!(store.import(tar, "large:1").await.unwrap_err().code, "no_space");
    assert_eq!(std::fs::read_dir(small.path().join("images/tmp")).unwrap().count(), 0);
    drop(store);
}

#[tokio::test]
async fn the_same_image_from_every_kind_of_file() {
    let dir = tempfile::tempdir().unwrap();
    let base = vec![TarFile::file("a", b"a")];
    let image = TestImage::new(&[
        (base.clone(), Packing::Plain),
        (vec![TarFile::file("b", b"b")], Packing::Plain),
        (base, Packing::Plain),
    ]);
    let store = Store::open(&dir.path().join("images"), Config::default()).unwrap();
    let layout = dir.path().join("layout");
    image.write_layout(&layout);
    let write = |name: &str, bytes: Vec<u8>| {
        std::fs::write(dir.path().join(name), bytes).unwrap();
        dir.path().join(name)
    };
    let layout_tar = image.layout_tar();
    let archive = image.docker_archive();
    let sources = [
        ("dir", layout),
        ("tar", write("layout.tar", layout_tar.clone())),
        ("gz", write("layout.tar.gz", support::image::pack(&layout_tar, Packing::Gzip))),
        ("docker", write("saved.tar", archive.clone())),
        ("docker-zst", write("saved.tar.zst", support::image::pack(&archive, Packing::Zstd))),
    ];
    for (tag, path) in sources {
        let image = store.import(path, &format!("x:{tag}")).await.unwrap();
        fsck(&image.disk);
        assert_eq!(image.record.user.as_deref(), Some("1000:1000"), "{tag}");
        let disk = Mounted::new(&image.disk);
        assert_eq!(disk.names(""), [b"a", b"b"], "{tag}");
    }
    // A layout is named by its manifest, a docker-archive by its config.
    assert_eq!(std::fs::read_dir(dir.path().join("images/manifests")).unwrap().count(), 2);
    assert_eq!(std::fs::read_dir(dir.path().join("images/tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_wrong_digest_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let other = TestImage::new(&[(vec![TarFile::file("other", b"other")], Packing::Gzip)]);
    let other = other.blobs[&other.layers[0]].clone();
    for replaced in [b"garbage".to_vec(), other] {
        let mut image = TestImage::new(&[(lower(), Packing::Gzip)]);
        image.blobs.insert(image.layers[0].clone(), replaced);
        let layout = dir.path().join("layout");
        image.write_layout(&layout);
        let images = dir.path().join("images");
        let store = Store::open(&images, Config::default()).unwrap();
        assert_eq!(store.import(layout, "x:1").await.unwrap_err().code, "digest_mismatch");
        for sub in ["manifests", "records", "names", "tmp"] {
            assert_eq!(std::fs::read_dir(images.join(sub)).unwrap().count(), 0, "{sub}");
        }
    }
}
