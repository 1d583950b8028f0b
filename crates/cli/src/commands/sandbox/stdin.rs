use crate::client::InputStream;
use bytes::Bytes;
use std::io::Read as _;
use warren_proto::guest::command_session::Input;

/// Largest piece of input, bytes.
const PIECE_LEN_MAX: usize = 64 << 10;

/// Passes this process's stdin on until it ends, then says so with an empty piece.
///
/// A thread of its own, because a read of a terminal cannot be given up; it ends with the process.
pub(super) fn pass_on(input: InputStream, wrap: fn(Bytes) -> Input) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE_LEN_MAX];
        loop {
            let len = match std::io::stdin().lock().read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Ok(len) => len,
                // A stdin that cannot be read has nothing to say.
                Err(_) => 0,
            };
            let gone = input.blocking_send(wrap(Bytes::copy_from_slice(&buffer[..len]))).is_err();
            if gone || len == 0 {
                return;
            }
        }
    });
}
