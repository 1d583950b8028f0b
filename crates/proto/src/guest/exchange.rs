//! Large files past the guest channel.
//!
//! The channel moves four KiB at a time; a disk moves half a MiB. So a machine has a third disk that is memory of its shim, cut
//! into pieces. One side fills a piece and sends a [`Record`] of it over the channel; the other takes the bytes out and sends the
//! piece back. A transfer works with the few pieces that it was lent, which bounds what is under way.
//!
//! - `PUT /files` with [`HEADER`]: the body is records of filled pieces, all but the last of them full. If the agent can open the
//!   file, it answers 200 with [`HEADER`] at once and the answer's body is records of pieces that are free again; the last record's
//!   piece is [`VERDICT`], its `len` the status, and the JSON of the answer follows.
//! - `GET /download` with [`HEADER`], whose value lists the pieces lent (`3,17,4`): the request's body is records of pieces that are
//!   free again and ends when the client is gone. If the agent takes the offer, its answer has [`HEADER`] and, where the file has
//!   one, [`LENGTH_HEADER`]; the body is records of filled pieces. After the end of that body the agent touches no piece.
//!
//! Answers without [`HEADER`] are the plain ones.

/// Serial number of the disk, by which the agent finds it.
pub const SERIAL: &str = "exchange";
/// Size of one piece, bytes.
pub const PIECE_LEN: usize = 512 << 10;
/// Pieces of the disk.
pub const PIECES: u32 = 64;
/// Pieces that one transfer works with.
pub const PIECES_LENT: usize = 4;
/// What reads and writes of the disk are multiples of, bytes.
pub const ALIGN: usize = 4096;
/// Marks requests and answers that use the disk.
pub const HEADER: &str = "warren-exchange";
/// Length of the file that follows, bytes.
pub const LENGTH_HEADER: &str = "warren-length";
/// The `piece` of the record that ends an upload.
pub const VERDICT: u32 = u32::MAX;
/// Longest JSON behind a verdict, bytes.
pub const VERDICT_LEN_MAX: usize = 64 << 10;

/// Word of one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Which.
    pub piece: u32,
    /// Bytes in it; 0 for one that is free again.
    pub len: u32,
}

impl Record {
    /// Bytes of a record on the wire: two little-endian numbers.
    pub const LEN: usize = 8;

    /// As it is sent.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.piece.to_le_bytes());
        bytes[4..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        Self { piece: word(0), len: word(4) }
    }

    /// Where the piece starts on the disk, bytes; `None` if this is no piece with bytes.
    pub fn filled_at(self) -> Option<u64> {
        let len = self.len as usize;
        (self.piece < PIECES && len > 0 && len <= PIECE_LEN).then(|| start_of(self.piece))
    }
}

/// Where a piece starts on the disk, bytes.
pub fn start_of(piece: u32) -> u64 {
    u64::from(piece) * PIECE_LEN as u64
}

/// Finds records in a byte stream that comes in parts of any length.
#[derive(Debug, Default)]
pub struct Records {
    pending: Vec<u8>,
}

impl Records {
    /// Takes the next part of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole record.
    pub fn next_record(&mut self) -> Option<Record> {
        let record = Record::decode(self.pending.first_chunk()?);
        self.pending.drain(..Record::LEN);
        Some(record)
    }

    /// What follows the last record taken.
    pub fn into_rest(self) -> Vec<u8> {
        self.pending
    }
}

/// The pieces of a list in a header's value; `None` if one is no piece or there are too many.
pub fn parse_pieces(list: &str) -> Option<Vec<u32>> {
    let pieces: Option<Vec<u32>> = list.split(',').take(PIECES_LENT + 1).map(|text| text.parse().ok()).collect();
    pieces.filter(|pieces| pieces.len() <= PIECES_LENT && pieces.iter().all(|piece| *piece < PIECES))
}

/// The list of these pieces, for a header's value.
pub fn format_pieces(pieces: &[u32]) -> String {
    pieces.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_pieces_of_the_disk_are_filled() {
        assert_eq!(Record { piece: 2, len: 1 }.filled_at(), Some(1 << 20));
        let full = PIECE_LEN as u32;
        for record in [(PIECES, 1), (VERDICT, 200), (0, 0), (0, full + 1), (0, u32::MAX)] {
            assert_eq!(Record { piece: record.0, len: record.1 }.filled_at(), None, "{record:?}");
        }
    }

    #[test]
    fn lists_of_pieces() {
        assert_eq!(parse_pieces(&format_pieces(&[3, 0, 63])), Some(vec![3, 0, 63]));
        for wrong in ["", "64", "-1", "1,,2", "1,2,3,4,5", "1, 2", "4294967297"] {
            assert_eq!(parse_pieces(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn records_survive_any_cut(records in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..20), cut in 1usize..20, rest in 0usize..8) {
            let sent: Vec<Record> = records.iter().map(|&(piece, len)| Record { piece, len }).collect();
            let mut bytes: Vec<u8> = sent.iter().flat_map(|record| record.encode()).collect();
            bytes.extend(vec![7; rest]);
            let mut reader = Records::default();
            let mut got = Vec::new();
            for part in bytes.chunks(cut) {
                reader.push(part);
                while let Some(record) = reader.next_record() {
                    got.push(record);
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert_eq!(reader.into_rest(), vec![7; rest]);
        }
    }
}
