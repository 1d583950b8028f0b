use super::upload::Upload;
use super::{FileUser, path_of, run_as};
use crate::agent::Agent;
use crate::http::{Incoming, Outgoing, Query, Refusal, Responder, answer_json, answer_refusal};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::SemaphorePermit;
use warren_proto::guest::FileWritten;
use warren_proto::guest::exchange::{self, Record, Records};

/// Bytes handed to the file at once, if so many have arrived.
const BLOCK_LEN: usize = 256 << 10;

/// `PUT /files?path=`: the body becomes the file, or the pieces of the exchange disk that it names.
pub async fn write(agent: &Agent, query: Query<'_>, head: &HeaderMap, mut body: Incoming, mut respond: Responder) {
    let result = match Target::open(agent, query).await {
        Ok(target) if head.contains_key(exchange::HEADER) => match &agent.exchange {
            Some(disk) => return take(agent, disk, target, body, respond).await,
            None => Err(Refusal::bad_request("there is no exchange disk")),
        },
        Ok(target) => receive(target, &mut body).await,
        Err(refusal) => Err(refusal),
    };
    match result {
        Ok(written) => answer_json(&mut respond, StatusCode::OK, &written),
        Err(refusal) if head.contains_key(exchange::HEADER) => {
            // At once: the shim waits for pieces to come back, which they never will, and takes care of the client.
            answer_refusal(&mut respond, refusal);
            drop_rest(body).await;
        }
        Err(refusal) => {
            // The rest is taken and dropped: clients of HTTP/1.1, for which this was unwrapped, read no answer before they have
            // sent all, and would report a broken connection instead of the reason.
            drop_rest(body).await;
            answer_refusal(&mut respond, refusal);
        }
    }
}

/// A file that is being written, and with whose rights.
struct Target<'a> {
    path: PathBuf,
    user: FileUser,
    upload: Upload,
    size: u64,
    _block: Option<SemaphorePermit<'a>>,
}

impl<'a> Target<'a> {
    async fn open(agent: &'a Agent, query: Query<'_>) -> Result<Self, Refusal> {
        let path = path_of(query)?;
        let user = FileUser::default_of(agent)?;
        let block = agent.file_blocks.try_acquire().ok();
        let opened = {
            let (path, by_blocks) = (path.clone(), block.is_some());
            run_as(&user, move || Upload::open(&path, by_blocks)).await
        };
        let upload = opened.map_err(|error| Refusal::of_file(&path.to_string_lossy(), &error))?;
        Ok(Self { path, user, upload, size: 0, _block: block })
    }

    /// Appends `len` bytes by `work`.
    async fn append(
        mut self,
        len: u64,
        work: impl FnOnce(&mut Upload) -> io::Result<()> + Send + 'static,
    ) -> Result<Self, Refusal> {
        let mut upload = self.upload;
        let appended = run_as(&self.user, move || work(&mut upload).map(|()| upload)).await;
        self.upload = appended.map_err(|error| Refusal::of_file(&self.path.to_string_lossy(), &error))?;
        self.size += len;
        Ok(self)
    }

    async fn commit(self) -> Result<FileWritten, Refusal> {
        let upload = self.upload;
        let committed = run_as(&self.user, move || upload.commit()).await;
        let path = self.path.to_string_lossy().into_owned();
        match committed {
            Ok(()) => Ok(FileWritten { path, size: self.size }),
            Err(error) => Err(Refusal::of_file(&path, &error)),
        }
    }
}

/// Appends the body.
async fn receive(mut target: Target<'_>, body: &mut Incoming) -> Result<FileWritten, Refusal> {
    while let Some(block) = next_block(body).await? {
        let len = block.iter().map(|part| part.len() as u64).sum();
        target = target.append(len, move |upload| block.iter().try_for_each(|part| upload.write(part))).await?;
    }
    target.commit().await
}

/// Appends pieces of the exchange disk; answers in the body of its answer.
async fn take(agent: &Agent, disk: &Arc<File>, target: Target<'_>, mut body: Incoming, mut respond: Responder) {
    let mut head = Response::new(());
    head.headers_mut().insert(exchange::HEADER, HeaderValue::from_static("1"));
    let Ok(stream) = respond.send_response(head, false) else { return };
    let mut out = Outgoing::new(stream, agent.outgoing.clone());
    let (status, json) = match take_pieces(disk, target, &mut body, &mut out).await {
        Ok(written) => (StatusCode::OK, serde_json::to_vec(&written)),
        Err(refusal) => (refusal.status, serde_json::to_vec(&refusal.into_error())),
    };
    let mut last = Record { piece: exchange::VERDICT, len: status.as_u16().into() }.encode().to_vec();
    last.extend(json.unwrap_or_default());
    out.finish(last.into());
    drop_rest(body).await;
}

async fn take_pieces(
    disk: &Arc<File>,
    mut target: Target<'_>,
    body: &mut Incoming,
    out: &mut Outgoing,
) -> Result<FileWritten, Refusal> {
    let mut records = Records::default();
    while let Some(bytes) = body.next().await? {
        records.push(&bytes);
        while let Some(record) = records.next_record() {
            let at = record.filled_at().ok_or_else(|| Refusal::bad_request(format!("no piece is {record:?}")))?;
            let (disk, len) = (disk.clone(), record.len as usize);
            target = target.append(len as u64, move |upload| upload.take(&disk, at, len)).await?;
            // If the peer has gone, the body's next part tells.
            let _ = out.send_now(Bytes::from_owner(Record { len: 0, ..record }.encode()));
        }
    }
    target.commit().await
}

async fn drop_rest(mut body: Incoming) {
    while let Ok(Some(_)) = body.next().await {}
}

/// The parts that have arrived, up to a block; waits for the first. `None` at a clean end.
async fn next_block(body: &mut Incoming) -> Result<Option<Vec<Bytes>>, Refusal> {
    let Some(first) = body.next().await? else { return Ok(None) };
    let mut len = first.len();
    let mut block = vec![first];
    while len < BLOCK_LEN {
        let Some(part) = body.next_arrived()? else { break };
        len += part.len();
        block.push(part);
    }
    Ok(Some(block))
}
