//! What the agent knows of the guest's health.

use crate::agent::Agent;
use crate::files::JsonText;
use crate::http::{Outgoing, Responder};
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// Log bytes turned to JSON at once.
const PIECE_LEN: usize = 32 << 10;
/// Size of a page, KiB.
const PAGE_KIB: u64 = 4;

/// The agent's own `/proc/self/statm`, opened before the guest could hide it.
pub struct OwnMemory(Option<File>);

impl OwnMemory {
    /// Opens it.
    pub fn open() -> Self {
        Self(File::open("/proc/self/statm").ok())
    }

    /// Resident memory, KiB; 0 where it cannot be told.
    fn resident_kib(&self) -> u64 {
        let mut text = [0; 128];
        let len = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let fields = str::from_utf8(&text[..len]).unwrap_or("").split(' ').nth(1);
        fields.and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE_KIB
    }
}

/// `GET /warren/status`: the fields of [`warren_proto::guest::GuestStatus`], the logs written piece by piece.
pub async fn status(agent: Rc<Agent>, mut respond: Responder) {
    let mut head = Response::new(());
    head.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let Ok(stream) = respond.send_response(head, false) else { return };
    let mut out = Outgoing::new(stream, agent.outgoing.clone());
    let (oom_kills, last_oom) = agent.oom.summary();
    let fields = serde_json::json!({
        "oom_kills": oom_kills,
        "last_oom": last_oom,
        "start_command_exit": agent.start_command.exit(),
        "agent_rss_kib": agent.own_memory.resident_kib(),
    });
    let mut json = fields.to_string().into_bytes();
    json.pop();
    json.extend_from_slice(b",\"logs\":\"");
    let mut text = JsonText::default();
    for piece in agent.start_command.log().chunks(PIECE_LEN) {
        text.push(piece, &mut json);
        // The caller may have gone; then there is nobody to tell.
        if out.write(Bytes::from(std::mem::take(&mut json))).await.is_err() {
            return;
        }
    }
    text.finish(&mut json);
    json.extend_from_slice(b"\"}");
    out.finish(json.into());
}
