use super::aligned::Aligned;
use super::source::{read_cached, read_disk};
use crate::agent::Agent;
use crate::http::{Budget, Incoming, Outgoing, Responder};
use crate::report;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::SemaphorePermit;
use warren_proto::guest::exchange::{self, ALIGN, PIECE_LEN, PIECES, Record, Records};

/// Shorter files go over the channel, bytes.
const LEN_MIN: u64 = 128 << 10;

/// Leave to send a file through the exchange disk.
pub(super) struct Loan<'a> {
    disk: Arc<File>,
    pieces: Vec<u32>,
    outgoing: Rc<Budget>,
    _block: SemaphorePermit<'a>,
}

impl<'a> Loan<'a> {
    /// What the request offers, where it is worth taking for a file of `len` bytes.
    pub(super) fn offered(agent: &'a Agent, head: &HeaderMap, len: u64) -> Option<Self> {
        if len < LEN_MIN {
            return None;
        }
        let disk = agent.exchange.clone()?;
        let pieces = exchange::parse_pieces(head.get(exchange::HEADER)?.to_str().ok()?)?;
        let block = agent.file_blocks.try_acquire().ok()?;
        Some(Self { disk, pieces, outgoing: agent.outgoing.clone(), _block: block })
    }
}

/// Sends the file through the exchange disk. One that shrinks or fails meanwhile ends the records before the length is reached.
pub(super) async fn give(mut loan: Loan<'_>, mut file: File, len: u64, mut body: Incoming, mut respond: Responder) {
    let mut head = Response::new(());
    let headers = head.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(exchange::HEADER, HeaderValue::from_static("1"));
    headers.insert(exchange::LENGTH_HEADER, len.into());
    let Ok(stream) = respond.send_response(head, false) else { return };
    let mut out = Outgoing::new(stream, loan.outgoing.clone());
    let mut block = Aligned::new(PIECE_LEN);
    let mut returned = Records::default();
    let mut offset = 0;
    while offset < len {
        let Some(piece) = next_piece(&mut loan.pieces, &mut returned, &mut body).await else { break };
        let (disk, want) = (loan.disk.clone(), (len - offset).min(PIECE_LEN as u64) as usize);
        let work = move || {
            let filled = read(&file, offset, &mut block.bytes_mut()[..want.next_multiple_of(ALIGN)])?.min(want);
            disk.write_all_at(&block.bytes()[..filled.next_multiple_of(ALIGN)], exchange::start_of(piece))?;
            Ok::<_, io::Error>((file, block, filled))
        };
        let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let filled;
        (file, block, filled) = match done {
            Ok(done) => done,
            Err(error) => {
                report!("download: at {offset} of {len}: {error}");
                break;
            }
        };
        let record = Record { piece, len: filled as u32 };
        if filled == 0 || out.send_now(Bytes::from_owner(record.encode())).is_err() {
            break;
        }
        offset += filled as u64;
    }
    out.finish(Bytes::new());
}

/// A piece to fill; waits until one is free again. `None` once the client is gone.
async fn next_piece(free: &mut Vec<u32>, returned: &mut Records, body: &mut Incoming) -> Option<u32> {
    loop {
        if let Some(piece) = free.pop() {
            return Some(piece);
        }
        returned.push(&body.next().await.ok()??);
        while let Some(record) = returned.next_record() {
            free.extend(Some(record.piece).filter(|piece| *piece < PIECES));
        }
    }
}

/// Reads what is in the page cache from there, the rest straight from the disk. Short reads end at a multiple of [`ALIGN`] where they
/// can, so that the next one can go past the page cache.
fn read(file: &File, offset: u64, block: &mut [u8]) -> io::Result<usize> {
    match read_cached(file, offset, block) {
        Some(len) if len < block.len() && len > ALIGN => Ok(len / ALIGN * ALIGN),
        Some(len) => Ok(len),
        None => read_disk(file, offset, block),
    }
}
