use super::upload::Upload;
use super::{FileUser, path_of, run_as};
use crate::agent::Agent;
use crate::http::{Incoming, Query, Refusal, Responder, answer_json, answer_refusal};
use bytes::Bytes;
use http::StatusCode;
use std::io;
use std::path::Path;
use std::rc::Rc;
use warren_proto::guest::FileWritten;

/// Bytes handed to the file at once, if so many have arrived.
const BLOCK_LEN: usize = 256 << 10;

/// `PUT /files?path=`: the body becomes the file.
pub async fn write(agent: Rc<Agent>, query: Query<'_>, mut body: Incoming, mut respond: Responder) {
    match store(&agent, query, &mut body).await {
        Ok(written) => answer_json(&mut respond, StatusCode::OK, &written),
        Err(refusal) => {
            // The rest is taken and dropped: clients of HTTP/1.1, for which this was unwrapped, read no answer before they have
            // sent all, and would report a broken connection instead of the reason.
            while let Ok(Some(_)) = body.next().await {}
            answer_refusal(&mut respond, refusal);
        }
    }
}

async fn store(agent: &Rc<Agent>, query: Query<'_>, body: &mut Incoming) -> Result<FileWritten, Refusal> {
    let path = path_of(query)?;
    let user = FileUser::default_of(agent)?;
    let of_file = |error: io::Error| Refusal::of_file(&path.to_string_lossy(), &error);
    let block = agent.upload_blocks.try_acquire();
    let mut upload = {
        let (path, by_blocks) = (path.clone(), block.is_ok());
        run_as(&user, move || Upload::open(&path, by_blocks)).await.map_err(of_file)?
    };
    let mut size = 0;
    while let Some(block) = next_block(body).await? {
        size += block.iter().map(|part| part.len() as u64).sum::<u64>();
        let work = move || {
            block.iter().try_for_each(|part| upload.write(part))?;
            Ok(upload)
        };
        upload = run_as(&user, work).await.map_err(of_file)?;
    }
    run_as(&user, move || upload.commit()).await.map_err(of_file)?;
    Ok(FileWritten { path: display(&path), size })
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

fn display(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
