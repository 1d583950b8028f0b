//! `convert TAR OUT [LABEL]`: a root file system tar (plain, gzip, zstd) to a bootable ext4 image; prints the speed.

use std::fs::File;
use std::time::Instant;
use warren_image::convert::{HashingReader, Marks, Root, decompressed};
use warren_image::ext4::Options;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(tar), Some(out)) = (args.next(), args.next()) else {
        return Err("usage: convert TAR OUT [LABEL]".into());
    };
    let label = args.next().unwrap_or_else(|| "warren-root".to_owned());
    let started = Instant::now();
    let (reader, hash) = HashingReader::new(File::open(tar)?);
    let options = Options { label, uuid: *b"warren image uid", made_s: 1, writable: true };
    let mut root = Root::new(File::create(out)?);
    root.apply(decompressed(reader)?.reader, Marks::Literal)?;
    let (file, summary) = root.finish(&options)?;
    let converted = started.elapsed();
    file.sync_all()?;
    let mb = hash.count() as f64 / 1e6;
    let speed = mb / converted.as_secs_f64();
    println!("sha256:{}", hash.hex());
    println!("{mb:.0} MB in {converted:.2?}: {speed:.0} MB/s; synced after {:.2?}; {summary:?}", started.elapsed());
    Ok(())
}
