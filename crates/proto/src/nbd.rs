//! The part of the network block device protocol that QEMU's client speaks to a server of one read-only disk: bytes and values, no IO.
//!
//! Source: the protocol's specification, `doc/proto.md` of the nbd project: fixed newstyle negotiation, simple replies.
//! Whoever connects is a locked-in VMM, so that all it says is taken for hostile.

/// What the server says first: two magic numbers and its flags (fixed newstyle, no zeroes).
pub const GREETING: [u8; 18] = *b"NBDMAGICIHAVEOPT\x00\x03";
/// Bytes of the client's flags, which come next.
pub const CLIENT_FLAGS_LEN: usize = 4;
/// Bytes of the head of an option.
pub const OPTION_HEAD_LEN: usize = 16;
/// Bytes of the head of a request.
pub const REQUEST_LEN: usize = 28;
/// Longest data of an option that is read, bytes.
pub const OPTION_DATA_MAX: u32 = 4096;
/// Most bytes that one request may read: what clients are told.
pub const READ_LEN_MAX: u32 = 1 << 20;
/// Options that a client may try.
pub const OPTIONS_MAX: usize = 32;

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_E889_0455_65A9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const OPTION_ABORT: u32 = 2;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = 1 << 31 | 1;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// Has flags, read-only, several connections see the same.
const EXPORT_FLAGS: u16 = 1 | 1 << 1 | 1 << 8;
/// The size of reads that is best: what the disk is kept in, bytes.
const BLOCK_PREFERRED: u32 = 64 << 10;
const COMMAND_READ: u16 = 0;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_FLUSH: u16 = 3;

/// The client does not speak the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the network block device protocol: {0}")]
pub struct BadNbd(&'static str);

/// Errors as the protocol numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Written to what is read-only.
    NotPermitted = 1,
    /// It could not be read.
    Io = 5,
    /// What nobody offered.
    Invalid = 22,
}

/// The head of an option; its data follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHead {
    option: u32,
    /// Bytes of data, at most [`OPTION_DATA_MAX`].
    pub len: u32,
}

/// What an option leads to, with the bytes to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionAnswer {
    /// The next option follows.
    Next(Vec<u8>),
    /// Requests follow.
    Start(Vec<u8>),
    /// The connection ends.
    End(Vec<u8>),
}

impl OptionHead {
    /// From its bytes.
    pub fn parse(bytes: &[u8; OPTION_HEAD_LEN]) -> Result<Self, BadNbd> {
        let head = Self { option: u32_at(bytes, 8), len: u32_at(bytes, 12) };
        match (u64_at(bytes, 0), head.len) {
            (OPTION_MAGIC, ..=OPTION_DATA_MAX) => Ok(head),
            (OPTION_MAGIC, _) => Err(BadNbd("an option is too long")),
            _ => Err(BadNbd("no option")),
        }
    }

    /// What to answer, for a disk of `size` bytes, whatever the client calls it.
    pub fn answer(self, size: u64) -> OptionAnswer {
        let reply = |kind: u32, data: &[u8]| {
            let mut out = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
            [self.option, kind, data.len() as u32].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
            out.extend_from_slice(data);
            out
        };
        match self.option {
            OPTION_ABORT => OptionAnswer::End(reply(REPLY_ACK, &[])),
            OPTION_GO | OPTION_INFO => {
                let export =
                    [&INFO_EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &EXPORT_FLAGS.to_be_bytes()].concat();
                let mut blocks = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                [1, BLOCK_PREFERRED, READ_LEN_MAX]
                    .iter()
                    .for_each(|word| blocks.extend_from_slice(&word.to_be_bytes()));
                let all = [reply(REPLY_INFO, &export), reply(REPLY_INFO, &blocks), reply(REPLY_ACK, &[])].concat();
                if self.option == OPTION_GO { OptionAnswer::Start(all) } else { OptionAnswer::Next(all) }
            }
            _ => OptionAnswer::Next(reply(REPLY_UNSUPPORTED, &[])),
        }
    }
}

/// What a client asks of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Bytes; within the disk, and not more than [`READ_LEN_MAX`].
    Read {
        /// Comes back with the reply.
        cookie: u64,
        /// From which byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// To be answered with this, and no data.
    Answer {
        /// Comes back with the reply.
        cookie: u64,
        /// `None`: done.
        error: Option<Errno>,
    },
    /// The connection ends.
    Disconnect,
}

impl Request {
    /// From its bytes, to a disk of `size` bytes.
    pub fn parse(bytes: &[u8; REQUEST_LEN], size: u64) -> Result<Self, BadNbd> {
        if u32_at(bytes, 0) != REQUEST_MAGIC {
            return Err(BadNbd("no request"));
        }
        let kind = u16::from_be_bytes([bytes[6], bytes[7]]);
        let (cookie, offset, len) = (u64_at(bytes, 8), u64_at(bytes, 16), u32_at(bytes, 24));
        let fits = len <= READ_LEN_MAX && offset.checked_add(len.into()).is_some_and(|end| end <= size);
        match kind {
            COMMAND_READ if fits => Ok(Self::Read { cookie, offset, len }),
            COMMAND_DISCONNECT => Ok(Self::Disconnect),
            COMMAND_FLUSH => Ok(Self::Answer { cookie, error: None }),
            COMMAND_READ => Ok(Self::Answer { cookie, error: Some(Errno::Invalid) }),
            // The data of a write follows it; what comes after that could not be told from it.
            1 => Err(BadNbd("a write to what is read-only")),
            _ => Ok(Self::Answer { cookie, error: Some(Errno::Invalid) }),
        }
    }
}

/// The head of a reply; the data of a read that went well follows it.
pub fn reply(cookie: u64, error: Option<Errno>) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
    out[4..8].copy_from_slice(&error.map_or(0, |error| error as u32).to_be_bytes());
    out[8..].copy_from_slice(&cookie.to_be_bytes());
    out
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(kind: u16, offset: u64, len: u32) -> [u8; REQUEST_LEN] {
        let mut out = [0; REQUEST_LEN];
        out[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        out[6..8].copy_from_slice(&kind.to_be_bytes());
        out[8..16].copy_from_slice(&7u64.to_be_bytes());
        out[16..24].copy_from_slice(&offset.to_be_bytes());
        out[24..].copy_from_slice(&len.to_be_bytes());
        out
    }

    #[test]
    fn reads_stay_within_the_disk() {
        let read = |offset, len| Request::parse(&request(COMMAND_READ, offset, len), 1 << 30).unwrap();
        assert_eq!(read(5, 10), Request::Read { cookie: 7, offset: 5, len: 10 });
        let refused = Request::Answer { cookie: 7, error: Some(Errno::Invalid) };
        for (offset, len) in [(1 << 30, 1), (u64::MAX, 2), (0, READ_LEN_MAX + 1)] {
            assert_eq!(read(offset, len), refused);
        }
        assert_eq!(Request::parse(&request(COMMAND_FLUSH, 0, 0), 1), Ok(Request::Answer { cookie: 7, error: None }));
        assert!(Request::parse(&request(1, 0, 1), 1).is_err());
    }

    #[test]
    fn the_export_is_told_with_its_size() {
        let head = OptionHead { option: OPTION_GO, len: 0 };
        let OptionAnswer::Start(bytes) = head.answer(0x1234_5678) else { panic!("it starts") };
        assert_eq!(bytes.len(), 20 + 12 + 20 + 14 + 20);
        assert_eq!(u64_at(&bytes, 22), 0x1234_5678);
        let unknown = OptionHead { option: 8, len: 0 }.answer(1);
        let OptionAnswer::Next(bytes) = unknown else { panic!("it goes on") };
        assert_eq!(u32_at(&bytes, 12), REPLY_UNSUPPORTED);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(option in any::<[u8; OPTION_HEAD_LEN]>(), request in any::<[u8; REQUEST_LEN]>(), size: u64) {
            let _ = OptionHead::parse(&option).map(|head| head.answer(size));
            if let Ok(Request::Read { offset, len, .. }) = Request::parse(&request, size) {
                prop_assert!(offset + u64::from(len) <= size);
            }
        }
    }
}
