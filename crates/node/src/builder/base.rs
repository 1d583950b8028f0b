//! Images that a build is based on go into the builder: each as the file system that it is, which the guest mounts and hands to Docker.

use super::guest::Guest;
use super::log::Log;
use super::sparse_tar::{head, len, tail};
use super::{FOLDER, exec};
use crate::sandbox::Source;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use std::ops::Range;
use warren_image::Image;
use warren_proto::node::ImageRecord;

/// Bytes that are read of a disk at once.
const PIECE_LEN: u64 = 256 << 10;
/// What the script says of a base that is not there from an earlier build.
const NOT_THERE: i32 = 3;
/// When bases were made, for Docker: the same each time, so that the same base is the same image.
const MADE: &str = "1970-01-01T00:00:00Z";

/// Has the builder's Docker know `image` as `name`.
pub(super) async fn put(guest: &Guest, script: &str, log: &mut Log, image: &Image, name: &str) -> Result<(), String> {
    let hex = image.lease.digest().hex();
    let step = |step: &str| exec::words(script, &[step, hex, name]);
    match exec::run(guest, step("take"), |piece| log.add(piece)).await? {
        0 => return Ok(()),
        NOT_THERE => {}
        code => return Err(told(log, code)),
    }
    log.add(format!("==> loading {}\n", image.record.reference).as_bytes());
    guest.put(&format!("{FOLDER}/base.json"), Bytes::from(config(&image.record))).await?;
    put_disk(guest, image).await?;
    match exec::run(guest, step("load"), |piece| log.add(piece)).await? {
        0 => Ok(()),
        code => Err(told(log, code)),
    }
}

fn told(log: &Log, code: i32) -> String {
    format!("it cannot be loaded into the builder, exit code {code}; last words:\n{}", log.tail())
}

/// Sends the disk, without its zeroes.
async fn put_disk(guest: &Guest, image: &Image) -> Result<(), String> {
    let broken = |e: std::io::Error| format!("read its disk: {e}");
    let disk = image.disk.clone();
    let data = tokio::task::spawn_blocking(move || disk.data_ranges()).await.map_err(|e| e.to_string())?;
    let data = data.map_err(broken)?;
    let (head, tail) = (Bytes::from(head("disk", image.disk.size(), &data)), Bytes::from(tail(&data)));
    let total = head.len() as u64 + len(&data) + tail.len() as u64;
    let source = Source::of(image);
    let pieces = stream::iter(data.into_iter().flat_map(pieces)).then(move |piece| {
        let source = source.clone();
        async move {
            let buffer = vec![0; (piece.end - piece.start) as usize];
            source.read(piece.start, buffer).await.map(Bytes::from)
        }
    });
    let ends = |bytes: Bytes| stream::iter([Ok(bytes)]);
    let body = ends(head).chain(pieces).chain(ends(tail));
    let body = StreamBody::new(body.map(|piece| piece.map(Frame::data).map_err(Into::into))).boxed_unsync();
    guest.put_body(&format!("{FOLDER}/base.tar"), total, body).await
}

fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(PIECE_LEN as usize).map(move |at| at..end.min(at + PIECE_LEN))
}

/// A config as Docker has it, but for the layers, which the guest adds, and the end.
fn config(record: &ImageRecord) -> String {
    let env: Vec<String> = record.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let list = |words: &[String]| (!words.is_empty()).then(|| words.to_vec());
    let config = json!({
        "architecture": record.architecture,
        "os": "linux",
        "created": MADE,
        "config": {
            "Env": env,
            "User": record.user.clone().unwrap_or_default(),
            "WorkingDir": record.workdir.clone().unwrap_or_default(),
            "Entrypoint": list(&record.entrypoint),
            "Cmd": list(&record.cmd),
            "Shell": list(&record.shell),
            "OnBuild": list(&record.on_build),
        },
        "history": [{"created": MADE, "created_by": format!("warren: {}", record.digest)}],
    });
    let mut text = config.to_string();
    text.pop();
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn pieces_are_bounded_and_whole() {
        let pieces: Vec<_> = pieces(100..PIECE_LEN + 200).collect();
        assert_eq!(pieces, [100..PIECE_LEN + 100, PIECE_LEN + 100..PIECE_LEN + 200]);
    }

    #[test]
    fn a_config_is_whole_once_its_layers_are_added() {
        let record = ImageRecord {
            reference: "a:1".into(),
            digest: "sha256:00".into(),
            size_bytes: 1,
            created_at_ms: 0,
            env: [("A".to_owned(), "x\n\"$y\"".to_owned())].into(),
            user: Some("app".into()),
            workdir: None,
            entrypoint: vec!["/e".into()],
            cmd: Vec::new(),
            shell: Vec::new(),
            on_build: vec!["RUN x".into()],
            architecture: "amd64".into(),
            private: false,
        };
        let whole = format!("{},\"rootfs\":{{}}}}", config(&record));
        let config: Value = serde_json::from_str(&whole).unwrap();
        assert_eq!(config["config"]["Env"], json!(["A=x\n\"$y\""]));
        assert_eq!(config["config"]["Cmd"], Value::Null);
        assert_eq!(config["config"]["OnBuild"], json!(["RUN x"]));
    }
}
