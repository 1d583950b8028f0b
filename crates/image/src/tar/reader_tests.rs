use super::*;
use proptest::prelude::*;

fn record(name: &str, kind: u8, size: u64) -> Vec<u8> {
    let mut out = vec![0; RECORD];
    out[..name.len()].copy_from_slice(name.as_bytes());
    out[100..107].copy_from_slice(b"0000644");
    out[108..115].copy_from_slice(b"0000000");
    out[116..123].copy_from_slice(b"0000000");
    out[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    out[136..147].copy_from_slice(b"00000000001");
    out[156] = kind;
    out[257..263].copy_from_slice(b"ustar\0");
    seal(&mut out);
    out
}

fn seal(record: &mut [u8]) {
    record[148..156].fill(b' ');
    let sum: u32 = record.iter().map(|b| u32::from(*b)).sum();
    record[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
    record[154] = 0;
}

fn body(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    out.resize(data.len().next_multiple_of(RECORD), 0);
    out
}

/// The data of the current file, holes filled.
fn content<R: Read>(reader: &mut Reader<R>) -> Result<Vec<u8>, TarError> {
    let mut out = Vec::new();
    while let Some(piece) = reader.next_piece()? {
        match piece {
            Piece::Bytes(bytes) => out.extend_from_slice(bytes),
            Piece::Hole(len) => out.resize(out.len() + len as usize, 0),
        }
    }
    Ok(out)
}

#[test]
fn long_names_and_data() {
    let long = "d/".repeat(200);
    let tar = [
        record("././@LongLink", b'L', long.len() as u64),
        body(long.as_bytes()),
        record("short", b'5', 0),
        record("f", b'0', 3),
        body(b"abc"),
        vec![0; 1024],
    ]
    .concat();
    let mut reader = Reader::new(&tar[..]);
    assert_eq!(reader.next_entry().unwrap().unwrap().path, long.as_bytes());
    assert_eq!(reader.next_entry().unwrap().unwrap().kind, EntryKind::File);
    assert_eq!(content(&mut reader).unwrap(), b"abc");
    assert!(reader.next_entry().unwrap().is_none());
}

#[test]
fn sparse_file_of_pax_1_0() {
    let pax = ["GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=real", "GNU.sparse.realsize=1000"];
    let pax: Vec<u8> = pax.iter().flat_map(|r| format!("{} {r}\n", r.len() + 4).into_bytes()).collect();
    let mut data = body(b"1\n100\n3\n");
    data.extend_from_slice(b"xyz");
    let tar = [record("p", b'x', pax.len() as u64), body(&pax), record("GNUSparseFile.0/real", b'0', 515), body(&data)]
        .concat();
    let mut reader = Reader::new(&tar[..]);
    assert_eq!(reader.next_entry().unwrap().unwrap().path, b"real");
    let content = content(&mut reader).unwrap();
    assert_eq!(content.len(), 1000);
    assert_eq!(&content[99..104], b"\0xyz\0");
    assert!(reader.next_entry().unwrap().is_none());
}

#[test]
fn sparse_file_of_gnu() {
    let mut header = record("s", b'S', 4);
    header[386..397].copy_from_slice(b"00000010000");
    header[398..409].copy_from_slice(b"00000000004");
    header[483..494].copy_from_slice(b"00000020000");
    seal(&mut header);
    let tar = [header, body(b"data"), record("next", b'0', 0)].concat();
    let mut reader = Reader::new(&tar[..]);
    reader.next_entry().unwrap().unwrap();
    let content = content(&mut reader).unwrap();
    assert_eq!(content.len(), 8192);
    assert_eq!(&content[4096..4100], b"data");
    assert_eq!(reader.next_entry().unwrap().unwrap().path, b"next");
}

#[test]
fn damage_is_told() {
    let whole = [record("f", b'0', 600), body(&[7; 600])].concat();
    let mut reader = Reader::new(&whole[..700]);
    reader.next_entry().unwrap();
    assert!(matches!(content(&mut reader), Err(TarError::CutOff)));
    let mut bad = record("f", b'0', 0);
    bad[0] = b'g';
    assert!(matches!(Reader::new(&bad[..]).next_entry(), Err(TarError::BadHeader("checksum"))));
    let huge = record("f", b'x', 0o77_777_777);
    assert!(matches!(Reader::new(&huge[..]).next_entry(), Err(TarError::TooLong(_))));
    let odd = record("f", b'M', 0);
    assert!(matches!(Reader::new(&odd[..]).next_entry(), Err(TarError::UnknownKind { kind: 'M', .. })));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..3000), seal_it: bool) {
        if seal_it && bytes.len() >= RECORD {
            bytes[124] = b'0';
            seal(&mut bytes[..RECORD]);
        }
        let mut reader = Reader::new(&bytes[..]);
        while let Ok(Some(_)) = reader.next_entry() {
            while let Ok(Some(_)) = reader.next_piece() {}
        }
    }
}
