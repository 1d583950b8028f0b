//! A tar of one sparse file, in the form that GNU tar calls PAX 1.0: zeroes are not in it. Pure.

use std::ops::Range;

/// Bytes of a record.
const RECORD: usize = 512;
/// What ends a tar, bytes.
const END_LEN: usize = 2 * RECORD;
/// Sizes from here on do not fit in a header's octal digits.
const OCTAL_SIZE_END: u64 = 1 << 33;

/// What comes before the bytes of `data`, which are parts of a file of `size` bytes, rising and apart.
pub(super) fn head(name: &str, size: u64, data: &[Range<u64>]) -> Vec<u8> {
    let map = map(size, data);
    let stored = map.len() as u64 + len(data);
    let mut attributes = vec![
        attribute("GNU.sparse.major", "1"),
        attribute("GNU.sparse.minor", "0"),
        attribute("GNU.sparse.name", name),
        attribute("GNU.sparse.realsize", &size.to_string()),
    ];
    if stored >= OCTAL_SIZE_END {
        attributes.push(attribute("size", &stored.to_string()));
    }
    let attributes = attributes.concat().into_bytes();
    let mut out = header("attributes", attributes.len() as u64, b'x');
    out.extend(padded(attributes));
    out.extend(header(name, stored % OCTAL_SIZE_END, b'0'));
    out.extend(map);
    out
}

/// What comes after them.
pub(super) fn tail(data: &[Range<u64>]) -> Vec<u8> {
    let over = (len(data) % RECORD as u64) as usize;
    vec![0; (RECORD - over) % RECORD + END_LEN]
}

/// Bytes of all parts.
pub(super) fn len(data: &[Range<u64>]) -> u64 {
    data.iter().map(|part| part.end - part.start).sum()
}

/// How many parts there are, and where each is; the last, empty one is where the file ends.
fn map(size: u64, data: &[Range<u64>]) -> Vec<u8> {
    let parts = data.iter().map(|part| format!("{}\n{}\n", part.start, part.end - part.start));
    let parts: String = parts.chain([format!("{size}\n0\n")]).collect();
    padded(format!("{}\n{parts}", data.len() + 1).into_bytes())
}

/// `<length> <key>=<value>\n`, the length being that of the whole.
fn attribute(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut len = rest.len();
    while len != rest.len() + len.to_string().len() {
        len = rest.len() + len.to_string().len();
    }
    format!("{len}{rest}")
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(RECORD), 0);
    bytes
}

fn header(name: &str, size: u64, kind: u8) -> Vec<u8> {
    let mut out = vec![0; RECORD];
    let mut put = |at: usize, text: &[u8]| out[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    // The sum is made with blanks in its place.
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = out.iter().map(|b| u32::from(*b)).sum();
    out[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    #[test]
    fn tar_makes_the_file_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let size = 40 << 20;
        let data = [4096..8192, (1 << 20)..(1 << 20) + 65536, (39 << 20)..(39 << 20) + 100];
        let mut wanted = vec![0; size as usize];
        let mut tar = head("disk", size, &data);
        for (n, part) in data.iter().enumerate() {
            wanted[part.start as usize..part.end as usize].fill(n as u8 + 1);
            tar.extend_from_slice(&wanted[part.start as usize..part.end as usize]);
        }
        tar.extend(tail(&data));
        assert_eq!(tar.len() % RECORD, 0);
        std::fs::write(dir.path().join("a.tar"), tar).unwrap();
        let done = Command::new("tar").args(["-xf", "a.tar"]).current_dir(dir.path()).status().unwrap();
        assert!(done.success());
        let made = dir.path().join("disk");
        assert!(std::fs::read(&made).unwrap() == wanted);
        assert!(made.metadata().unwrap().blocks() * 512 < 1 << 20, "zeroes take no room");
    }

    #[test]
    fn lengths_count_themselves() {
        assert_eq!(attribute("a", "12345"), "11 a=12345\n");
        assert_eq!(attribute("a", "1234"), "9 a=1234\n");
        assert_eq!(attribute("a", "123"), "8 a=123\n");
    }
}
