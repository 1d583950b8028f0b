//! What the guest's kernel and QEMU print, bounded: a guest can print for ever without filling the host.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes that are kept, the newest.
const KEPT_MAX: usize = 64 << 10;

/// The newest output of one machine.
#[derive(Debug, Clone, Default)]
pub struct Console(Arc<Mutex<VecDeque<u8>>>);

impl Console {
    /// Drains `source` until it ends, in a task of its own.
    pub fn follow(&self, mut source: impl AsyncRead + Unpin + Send + 'static) {
        let ring = self.clone();
        tokio::spawn(async move {
            let mut chunk = [0u8; 4096];
            while let Ok(n @ 1..) = source.read(&mut chunk).await {
                ring.push(&chunk[..n]);
            }
        });
    }

    fn push(&self, bytes: &[u8]) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.extend(bytes);
        let over = ring.len().saturating_sub(KEPT_MAX);
        ring.drain(..over);
    }

    /// The last `lines` lines, for people.
    pub fn tail(&self, lines: usize) -> String {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(ring.make_contiguous()).into_owned();
        let all: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_is_kept() {
        let console = Console::default();
        for i in 0..20_000 {
            console.push(format!("line {i}\n").as_bytes());
        }
        assert_eq!(console.tail(2), "line 19998\nline 19999");
        assert!(console.0.lock().unwrap().len() <= KEPT_MAX);
    }
}
