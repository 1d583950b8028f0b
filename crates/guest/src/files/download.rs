use super::give::{Loan, give};
use super::source::Source;
use super::{FileUser, open_regular, path_of, run_as};
use crate::agent::Agent;
use crate::http::{CHUNK_LEN_MAX, Incoming, Outgoing, Query, Refusal, Responder, answer_refusal};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use std::fs::File;
use std::future::poll_fn;
use warren_proto::guest::exchange::ALIGN;

/// Bytes read and sent at once. A multiple of [`ALIGN`] that one frame takes.
const BLOCK_LEN: usize = CHUNK_LEN_MAX / ALIGN * ALIGN;

/// `GET /download?path=`: the file's bytes. A file that shrinks meanwhile ends the stream with an error, not short.
pub async fn download(agent: &Agent, query: Query<'_>, head: &HeaderMap, body: Incoming, mut respond: Responder) {
    match open(agent, query).await {
        Ok((file, len)) => match Loan::offered(agent, head, len) {
            Some(loan) => give(loan, file, len, body, respond).await,
            None => send(agent, file, len, respond).await,
        },
        Err(refusal) => answer_refusal(&mut respond, refusal),
    }
}

async fn open(agent: &Agent, query: Query<'_>) -> Result<(File, u64), Refusal> {
    let path = path_of(query)?;
    let user = FileUser::default_of(agent)?;
    let work = {
        let path = path.clone();
        move || open_regular(&path)
    };
    run_as(&user, work).await.map_err(|error| Refusal::of_file(&path.to_string_lossy(), &error))
}

async fn send(agent: &Agent, file: File, len: u64, mut respond: Responder) {
    let mut head = Response::new(());
    head.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // Files of /proc and the like have no length, but bytes.
    let expected = Some(len).filter(|&len| len > 0);
    if let Some(len) = expected {
        head.headers_mut().insert(header::CONTENT_LENGTH, len.into());
    }
    let Ok(stream) = respond.send_response(head, false) else { return };
    let mut out = Outgoing::new(stream, agent.outgoing.clone());
    let mut source = Source::new(file, 0);
    let mut left = expected.unwrap_or(u64::MAX);
    while left > 0 {
        // Memory is taken only for what can go at once: clients that read slowly hold none.
        let want = left.min(BLOCK_LEN as u64) as usize;
        let Ok(room) = poll_fn(|cx| out.poll_room(want, want.min(ALIGN), cx)).await else { return };
        let len = if room.len() > ALIGN { room.len() / ALIGN * ALIGN } else { room.len() };
        let Ok((rest, block)) = source.next(len).await else { return };
        source = rest;
        if block.is_empty() {
            break;
        }
        left -= block.len() as u64;
        if out.send(block, room).is_err() {
            return;
        }
        out.rest();
    }
    if expected.is_none() || left == 0 {
        out.finish(Bytes::new());
    }
}
