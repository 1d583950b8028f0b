//! Where a command's stream stands, so that a cut one can be ended as the protocol wants. Pure.

use bytes::Bytes;
use warren_proto::guest::command_session::{Code, ConnectError, END_STREAM, EndOfStream, HEADER_LEN, envelope};

/// Follows the frames of a stream without keeping them.
#[derive(Debug, Default)]
pub(super) struct Tail {
    header: Vec<u8>,
    payload_left: u64,
    ended: bool,
}

impl Tail {
    /// Takes note of bytes that go by.
    pub(super) fn see(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.payload_left > 0 {
                let n = data.len().min(usize::try_from(self.payload_left).unwrap_or(usize::MAX));
                self.payload_left -= n as u64;
                data = &data[n..];
                continue;
            }
            let n = data.len().min(HEADER_LEN - self.header.len());
            self.header.extend_from_slice(&data[..n]);
            data = &data[n..];
            if let [flags, len @ ..] = self.header.as_slice()
                && let Ok(len) = <[u8; 4]>::try_from(len)
            {
                self.ended |= flags & END_STREAM != 0;
                self.payload_left = u32::from_be_bytes(len).into();
                self.header.clear();
            }
        }
    }

    /// The frame that ends a stream which was cut here: `None` if it had ended, or was cut inside a frame and cannot be mended.
    pub(super) fn last_frame(&self, code: Code, message: &str) -> Option<Bytes> {
        let between_frames = self.payload_left == 0 && self.header.is_empty();
        (between_frames && !self.ended).then(|| {
            let end = EndOfStream { error: Some(ConnectError::new(code, message)) };
            envelope(END_STREAM, &end.to_json())
        })
    }

    /// Whether the stream's own end has gone by whole.
    pub(super) fn is_complete(&self) -> bool {
        self.ended && self.payload_left == 0 && self.header.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        [envelope(0, b"one").to_vec(), envelope(0, b"").to_vec(), envelope(END_STREAM, b"{}").to_vec()].concat()
    }

    #[test]
    fn every_cut_is_told_apart_however_the_bytes_arrive() {
        let stream = stream();
        let ends = [0, 8, 13];
        for cut in 0..=stream.len() {
            for step in 1..=stream.len() {
                let mut tail = Tail::default();
                stream[..cut].chunks(step).for_each(|chunk| tail.see(chunk));
                assert_eq!(tail.is_complete(), cut == stream.len(), "cut {cut} step {step}");
                assert_eq!(
                    tail.last_frame(Code::NotFound, "x").is_some(),
                    ends.contains(&cut),
                    "cut {cut} step {step}"
                );
            }
        }
    }
}
