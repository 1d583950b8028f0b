use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes before each message of a stream: one of flags, four of length (big-endian).
pub const HEADER_LEN: usize = 5;
/// Flag: the payload is compressed.
const COMPRESSED: u8 = 1;
/// Flag: the payload is the JSON that ends the stream.
pub const END_STREAM: u8 = 2;

/// One frame of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Whether this is the last frame; its payload is then [`super::EndOfStream`].
    pub end_stream: bool,
    /// A message, or the end's JSON.
    pub payload: Bytes,
}

/// The bytes are not a stream that we read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEnvelope {
    /// The peer compressed although nothing was agreed on.
    #[error("compressed message, but no compression was agreed on")]
    Compressed,
    /// Flags beyond those of the protocol.
    #[error("unknown envelope flags {0:#04x}")]
    Flags(u8),
    /// The announced length is over the reader's limit.
    #[error("message of {len} bytes is over the limit of {max}")]
    TooLong {
        /// Announced, bytes.
        len: u64,
        /// Limit, bytes.
        max: usize,
    },
    /// The stream ended inside a frame.
    #[error("stream ends inside a frame")]
    Cut,
}

/// The five bytes before a payload of `len` bytes.
pub fn envelope_header(flags: u8, len: u32) -> [u8; HEADER_LEN] {
    let [a, b, c, d] = len.to_be_bytes();
    [flags, a, b, c, d]
}

/// Header and payload in one piece. The payload must be shorter than 4 GiB.
pub fn envelope(flags: u8, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_LEN + payload.len());
    out.put_slice(&envelope_header(flags, payload.len() as u32));
    out.put_slice(payload);
    out.freeze()
}

/// Cuts a stream of bytes into frames, however the bytes arrive.
#[derive(Debug)]
pub struct EnvelopeDecoder {
    buffered: BytesMut,
    len_max: usize,
}

impl EnvelopeDecoder {
    /// A decoder that refuses payloads over `len_max` bytes as soon as their header has come.
    pub fn new(len_max: usize) -> Self {
        Self { buffered: BytesMut::new(), len_max }
    }

    /// Takes bytes in.
    pub fn push(&mut self, data: &[u8]) {
        self.buffered.extend_from_slice(data);
    }

    /// Takes bytes in without copying them, where nothing is buffered and nobody else holds them.
    pub fn push_bytes(&mut self, data: Bytes) {
        if self.buffered.is_empty() {
            self.buffered = data.into();
        } else {
            self.push(&data);
        }
    }

    /// The next whole frame; `None` until more bytes come.
    #[expect(clippy::should_implement_trait, reason = "it can fail, and after `None` there may be more")]
    pub fn next(&mut self) -> Result<Option<Envelope>, BadEnvelope> {
        let Some(header) = self.buffered.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let [flags, len @ ..] = *header;
        let len = u32::from_be_bytes(len);
        if flags & !(COMPRESSED | END_STREAM) != 0 {
            return Err(BadEnvelope::Flags(flags));
        }
        if flags & COMPRESSED != 0 {
            return Err(BadEnvelope::Compressed);
        }
        if len as usize > self.len_max {
            return Err(BadEnvelope::TooLong { len: len.into(), max: self.len_max });
        }
        if self.buffered.len() < HEADER_LEN + len as usize {
            return Ok(None);
        }
        self.buffered.advance(HEADER_LEN);
        let payload = self.buffered.split_to(len as usize).freeze();
        Ok(Some(Envelope { end_stream: flags & END_STREAM != 0, payload }))
    }

    /// To be asked when the bytes have ended: an error if they ended inside a frame.
    pub fn finish(&self) -> Result<(), BadEnvelope> {
        if self.buffered.is_empty() { Ok(()) } else { Err(BadEnvelope::Cut) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode_all(chunks: &[&[u8]], len_max: usize) -> Result<Vec<Envelope>, BadEnvelope> {
        let mut decoder = EnvelopeDecoder::new(len_max);
        let mut out = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            if index % 2 == 0 {
                decoder.push(chunk)
            } else {
                decoder.push_bytes(Bytes::copy_from_slice(chunk))
            }
            while let Some(frame) = decoder.next()? {
                out.push(frame);
            }
        }
        decoder.finish()?;
        Ok(out)
    }

    #[test]
    fn the_end_frame_is_seven_bytes() {
        assert_eq!(&envelope(END_STREAM, b"{}")[..], b"\x02\x00\x00\x00\x02{}");
    }

    #[test]
    fn a_long_message_is_refused_by_its_header() {
        let header = envelope_header(0, 1001);
        assert_eq!(decode_all(&[&header], 1000), Err(BadEnvelope::TooLong { len: 1001, max: 1000 }));
    }

    #[test]
    fn compression_unknown_flags_and_a_cut_are_errors() {
        assert_eq!(decode_all(&[&envelope(1, b"x")], 9), Err(BadEnvelope::Compressed));
        assert_eq!(decode_all(&[&envelope(0x80, b"x")], 9), Err(BadEnvelope::Flags(0x80)));
        assert_eq!(decode_all(&[&envelope(0, b"xyz")[..6]], 9), Err(BadEnvelope::Cut));
    }

    proptest! {
        #[test]
        fn any_cut_of_the_bytes_gives_the_same_frames(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8),
            step in 1usize..64,
        ) {
            let bytes: Vec<u8> = payloads.iter().flat_map(|p| envelope(0, p)).collect();
            let chunks: Vec<&[u8]> = bytes.chunks(step).collect();
            let frames = decode_all(&chunks, 300).unwrap();
            prop_assert_eq!(frames.iter().map(|f| f.payload.to_vec()).collect::<Vec<_>>(), payloads);
        }

        #[test]
        fn foreign_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_all(&[&bytes], 64);
        }
    }
}
