//! Large files between a client and the guest, through the exchange disk. See [`warren_proto::guest::exchange`] for the exchange of
//! records; whatever does not fit it goes over the channel as it is.

use crate::body::{AnyBody, Feed, Unread, piped, whole};
use crate::channel::GuestSender;
use crate::exchange::{Exchange, Loan};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use warren_proto::guest::exchange::{
    HEADER, LENGTH_HEADER, PIECE_LEN, Record, Records, VERDICT, VERDICT_LEN_MAX, format_pieces,
};

/// Shorter uploads go over the channel, bytes.
const UPLOAD_LEN_MIN: usize = 128 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    #[error("the guest channel broke: {0}")]
    Channel(#[from] hyper::Error),
    #[error("the upload was cut off: {0}")]
    Cut(#[source] hyper::Error),
    #[error("the guest agent's answer makes no sense: {0}")]
    Nonsense(&'static str),
    #[error("the exchange disk: {0}")]
    Disk(#[from] std::io::Error),
}

/// Sends a request as it is.
pub(crate) async fn plain(
    sender: &mut GuestSender,
    request: Request<AnyBody>,
) -> Result<Response<AnyBody>, TransferError> {
    sender.ready().await?;
    Ok(sender.send_request(request).await?.map(Either::Left))
}

/// What of an upload has come and was not passed on yet.
struct Source {
    arrived: BytesMut,
    rest: Option<Incoming>,
}

impl Source {
    /// Waits for more; false at the end.
    async fn more(&mut self) -> Result<bool, TransferError> {
        while let Some(body) = &mut self.rest {
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.arrived.extend_from_slice(&data);
                        return Ok(true);
                    }
                }
                Some(Err(error)) => return Err(TransferError::Cut(error)),
                None => self.rest = None,
            }
        }
        Ok(false)
    }

    /// Reads to the end without an aim: clients of HTTP/1.1 read no answer before they have sent all.
    async fn drain(&mut self) -> Result<(), TransferError> {
        while self.more().await? {
            self.arrived.clear();
        }
        Ok(())
    }
}

/// `PUT /files`.
pub(crate) async fn upload(
    sender: &mut GuestSender,
    exchange: &Exchange,
    parts: Parts,
    body: Incoming,
) -> Result<Response<AnyBody>, TransferError> {
    let mut source = Source { arrived: BytesMut::new(), rest: Some(body) };
    while source.arrived.len() < UPLOAD_LEN_MIN && source.more().await? {}
    if source.rest.is_none() {
        return plain(sender, Request::from_parts(parts, whole(source.arrived.freeze()))).await;
    }
    let loan = exchange.lend();
    let (feed, body) = piped();
    let mut request = Request::from_parts(parts, body);
    request.headers_mut().remove(CONTENT_LENGTH);
    let Some(loan) = loan else {
        return Ok(tokio::try_join!(pass_on(source, feed), plain(sender, request))?.1);
    };
    request.headers_mut().insert(HEADER, HeaderValue::from_static("1"));
    let pieces = Pieces::of(&loan);
    let mut feed = Some(feed);
    let listening = listen(sender, request, &pieces);
    tokio::pin!(listening);
    let filling = fill(&mut source, loan.exchange(), &pieces, &mut feed);
    let answer = tokio::select! {
        answer = &mut listening => answer?,
        filled = filling => {
            filled?;
            listening.await?
        }
    };
    // An answer that came before the end: whatever is still sent has no aim.
    if let Some(feed) = feed {
        feed.end().await;
    }
    source.drain().await?;
    Ok(answer)
}

/// The pieces of an upload: free to be filled, or with the guest. What it gives back must have been given to it.
struct Pieces<'a> {
    lent: &'a [u32],
    free: Mutex<Vec<u32>>,
    returned: Notify,
}

impl<'a> Pieces<'a> {
    fn of(loan: &'a Loan) -> Self {
        Self { lent: loan.pieces(), free: Mutex::new(loan.pieces().to_vec()), returned: Notify::new() }
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free piece; waits until there is one. It counts as given.
    async fn take(&self) -> u32 {
        loop {
            let returned = self.returned.notified();
            let piece = self.free().pop();
            if let Some(piece) = piece {
                return piece;
            }
            returned.await;
        }
    }

    /// Takes a piece back; false if the guest does not have it.
    fn take_back(&self, piece: u32) -> bool {
        let mut free = self.free();
        if !self.lent.contains(&piece) || free.contains(&piece) {
            return false;
        }
        free.push(piece);
        self.returned.notify_one();
        true
    }
}

/// Feeds the request's body from the source.
async fn pass_on(mut source: Source, feed: Feed) -> Result<(), TransferError> {
    loop {
        if !source.arrived.is_empty() && feed.send(source.arrived.split().freeze()).await.is_err() {
            return source.drain().await;
        }
        if !source.more().await? {
            feed.end().await;
            return Ok(());
        }
    }
}

/// Fills pieces from the source and sends their records; ends the request's body after the last.
async fn fill(
    source: &mut Source,
    exchange: &Exchange,
    pieces: &Pieces<'_>,
    feed: &mut Option<Feed>,
) -> Result<(), TransferError> {
    let mut at_end = false;
    while !at_end {
        let piece = pieces.take().await;
        let mut len = 0;
        while len < PIECE_LEN {
            if source.arrived.is_empty() && !source.more().await? {
                at_end = true;
                break;
            }
            let part = source.arrived.split_to(source.arrived.len().min(PIECE_LEN - len));
            exchange.write(&part, piece, len)?;
            len += part.len();
        }
        let record = Record { piece, len: len as u32 };
        if let Some(feed) = feed
            && len > 0
            && feed.send(Bytes::from_owner(record.encode())).await.is_err()
        {
            return Ok(());
        }
    }
    if let Some(feed) = feed.take() {
        feed.end().await;
    }
    Ok(())
}

/// Sends the request and reads the pieces that come back until the verdict.
async fn listen(
    sender: &mut GuestSender,
    request: Request<AnyBody>,
    pieces: &Pieces<'_>,
) -> Result<Response<AnyBody>, TransferError> {
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    if !response.headers().contains_key(HEADER) {
        return Ok(response.map(Either::Left));
    }
    let mut body = response.into_body();
    let mut records = Records::default();
    let verdict = 'verdict: loop {
        let Some(frame) = body.frame().await else { return Err(TransferError::Nonsense("no verdict on an upload")) };
        if let Ok(data) = frame?.into_data() {
            records.push(&data);
        }
        while let Some(record) = records.next_record() {
            if record.piece == VERDICT {
                break 'verdict record.len;
            }
            if record.len > 0 || !pieces.take_back(record.piece) {
                return Err(TransferError::Nonsense("a record that is not one of an upload"));
            }
        }
    };
    let mut json = records.into_rest();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            json.extend_from_slice(&data);
        }
        if json.len() > VERDICT_LEN_MAX {
            return Err(TransferError::Nonsense("a verdict without end"));
        }
    }
    let status = u16::try_from(verdict).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let mut answer = Response::new(whole(json));
    *answer.status_mut() = status.ok_or(TransferError::Nonsense("a verdict that is no status"))?;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(answer)
}

/// `GET /download`.
pub(crate) async fn download(
    sender: &mut GuestSender,
    exchange: &Exchange,
    mut parts: Parts,
) -> Result<Response<AnyBody>, TransferError> {
    let loan =
        exchange.lend().and_then(|loan| Some((HeaderValue::from_str(&format_pieces(loan.pieces())).ok()?, loan)));
    let Some((offer, loan)) = loan else {
        return plain(sender, Request::from_parts(parts, whole(Bytes::new()))).await;
    };
    parts.headers.insert(HEADER, offer);
    let (returned, body) = piped();
    let task = Giving { sender: sender.clone(), request: Request::from_parts(parts, body), returned, loan };
    // In a task of its own: the pieces may be lent again only when the guest has said its last word, whatever becomes of the client.
    let (head, answer) = tokio::sync::oneshot::channel();
    tokio::spawn(task.run(head));
    answer.await.map_err(|_| TransferError::Nonsense("no answer to a download"))?
}

/// One download under way.
struct Giving {
    sender: GuestSender,
    request: Request<AnyBody>,
    returned: Feed,
    loan: Loan,
}

impl Giving {
    async fn run(mut self, head: tokio::sync::oneshot::Sender<Result<Response<AnyBody>, TransferError>>) {
        let sent = async {
            self.sender.ready().await?;
            self.sender.send_request(self.request).await
        };
        let response = match sent.await {
            Ok(response) if response.headers().contains_key(HEADER) => response,
            Ok(plain) => {
                self.returned.end().await;
                let _ = head.send(Ok(plain.map(Either::Left)));
                return;
            }
            Err(error) => {
                self.loan.lose();
                let _ = head.send(Err(error.into()));
                return;
            }
        };
        let (mut parts, mut records) = response.into_parts();
        let length = parts.headers.remove(LENGTH_HEADER).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        parts.headers.remove(HEADER);
        let (client, body) = piped();
        if let Some(length) = length {
            parts.headers.insert(CONTENT_LENGTH, length.into());
        }
        let _ = head.send(Ok(Response::from_parts(parts, body)));
        let sent = pump(&mut records, &self.returned, &self.loan, &client).await;
        self.returned.end().await;
        match sent {
            Ok(sent) if Some(sent) == length => client.end().await,
            Ok(sent) => tracing::warn!(sent, length, "the guest ended a download before its end"),
            Err(Unsent::Client) => {
                while let Some(frame) = records.frame().await {
                    if frame.is_err() {
                        return self.loan.lose();
                    }
                }
            }
            Err(Unsent::Guest(problem)) => {
                tracing::warn!(problem, "a download was cut off");
                self.loan.lose();
            }
        }
    }
}

/// Why a download was not sent to its end.
enum Unsent {
    /// The client gave up.
    Client,
    /// The guest gave up, or makes no sense.
    Guest(String),
}

impl Unsent {
    fn guest(problem: impl std::fmt::Display) -> Self {
        Unsent::Guest(problem.to_string())
    }
}

/// Passes filled pieces on until the records end, and counts their bytes.
async fn pump(body: &mut Incoming, returned: &Feed, loan: &Loan, client: &Feed) -> Result<u64, Unsent> {
    let mut records = Records::default();
    let mut sent = 0;
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(Unsent::guest)?.into_data() {
            records.push(&data);
        }
        while let Some(record) = records.next_record() {
            let filled = record.filled_at().filter(|_| loan.pieces().contains(&record.piece));
            let at = filled.ok_or_else(|| Unsent::guest(format_args!("it was lent no piece like {record:?}")))?;
            let bytes = loan.exchange().read(at, record.len as usize).map_err(Unsent::guest)?;
            let back = Bytes::from_owner(Record { len: 0, ..record }.encode());
            // A guest that has filled its last piece takes none back.
            let _ = returned.send(back).await;
            sent += bytes.len() as u64;
            client.send(bytes.into()).await.map_err(|Unread| Unsent::Client)?;
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn loan() -> Loan {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        Exchange::new(File::from(memory), &[]).lend().unwrap()
    }

    #[tokio::test]
    async fn a_guest_gives_back_only_what_it_has() {
        let loan = loan();
        let pieces = Pieces::of(&loan);
        let first = pieces.take().await;
        let other = *loan.pieces().iter().find(|piece| **piece != first).unwrap();
        for wrong in [other, 100_000, VERDICT - 1] {
            assert!(!pieces.take_back(wrong), "{wrong}");
        }
        assert!(pieces.take_back(first) && !pieces.take_back(first));
    }

    #[tokio::test]
    async fn a_piece_that_comes_back_wakes_who_waits() {
        let loan = loan();
        let pieces = Pieces::of(&loan);
        for _ in loan.pieces() {
            pieces.take().await;
        }
        let back = loan.pieces()[0];
        let (taken, ()) = tokio::join!(pieces.take(), async { assert!(pieces.take_back(back)) });
        assert_eq!(taken, back);
    }
}
