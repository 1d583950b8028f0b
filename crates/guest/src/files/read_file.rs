use super::json_text::JsonText;
use super::source::Source;
use super::window::{Window, window};
use super::{FileUser, open_regular, path_of, run_as};
use crate::agent::Agent;
use crate::http::{Gone, Outgoing, Query, Refusal, Responder, answer_refusal};
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use std::fs::File;
use std::io::{Read, Seek};
use std::rc::Rc;
use warren_proto::guest::limits::READ_FILE_LEN_MAX;

/// `GET /read-file?path=[&offset=][&length=]`: a window of a file as text in JSON, the same fields as
/// [`warren_proto::guest::ReadFile`], written piece by piece.
pub async fn read_file(agent: Rc<Agent>, query: Query<'_>, mut respond: Responder) {
    match open(&agent, query).await {
        Ok((file, total, part)) => {
            if let Some(out) = begin_json(&agent, respond) {
                // The caller may have gone; then there is nobody to tell.
                let _ = send(out, file, total, part).await;
            }
        }
        Err(refusal) => answer_refusal(&mut respond, refusal),
    }
}

/// Sends the head of a JSON answer. `None` if the caller has gone.
fn begin_json(agent: &Agent, mut respond: Responder) -> Option<Outgoing> {
    let mut head = Response::new(());
    head.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(Outgoing::new(respond.send_response(head, false).ok()?, agent.outgoing.clone()))
}

async fn open(agent: &Rc<Agent>, query: Query<'_>) -> Result<(File, u64, Window), Refusal> {
    let path = path_of(query)?;
    let user = FileUser::default_of(agent)?;
    let (offset, length) = (query.get_text("offset"), query.get_text("length"));
    let of_file = |error: std::io::Error| Refusal::of_file(&path.to_string_lossy(), &error);
    let work = {
        let path = path.clone();
        move || {
            let (mut file, mut total) = open_regular(&path)?;
            if total == 0 {
                total = length_by_reading(&mut file)?;
            }
            Ok((file, total))
        }
    };
    let (file, total) = run_as(&user, work).await.map_err(of_file)?;
    let part = window(offset.as_deref(), length.as_deref(), total)?;
    Ok((file, total, part))
}

/// Files of /proc and the like tell no length, but have bytes.
fn length_by_reading(file: &mut File) -> std::io::Result<u64> {
    let len = std::io::copy(&mut file.take(READ_FILE_LEN_MAX + 1), &mut std::io::sink())?;
    file.rewind()?;
    Ok(len)
}

/// Bytes read at once; as JSON they may become six times as many.
const BLOCK_LEN: u64 = 64 << 10;

async fn send(mut out: Outgoing, file: File, total: u64, part: Window) -> Result<(), Gone> {
    let mut source = Source::new(file, part.offset);
    let mut text = JsonText::default();
    let mut json = b"{\"content\":\"".to_vec();
    let mut size = 0;
    while size < part.len {
        let (rest, block) = source.next((part.len - size).min(BLOCK_LEN) as usize).await.map_err(|_| Gone)?;
        source = rest;
        if block.is_empty() {
            break;
        }
        size += block.len() as u64;
        text.push(&block, &mut json);
        out.write(Bytes::from(std::mem::take(&mut json))).await?;
    }
    text.finish(&mut json);
    let Window { offset, .. } = part;
    let truncated = offset > 0;
    let rest = format!("\",\"size\":{size},\"total_size\":{total},\"offset\":{offset},\"truncated\":{truncated}}}");
    json.extend_from_slice(rest.as_bytes());
    out.finish(json.into());
    Ok(())
}
