use super::{Gateway, GatewayError, Session};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use prost::Message as _;
use std::convert::Infallible;
use tokio::sync::mpsc;
use warren_proto::guest::command_session::{
    CommandInput, CommandSessionSelector, Input, Selector, StreamInputData, StreamInputEvent, StreamInputRequest,
    StreamInputStart, envelope,
};

/// Pieces of input that may wait for the sandbox; then the reader of stdin waits.
const PIECES_QUEUED_MAX: usize = 4;

/// Where pieces of input are put; dropping it ends the stream.
pub(crate) type InputStream = mpsc::Sender<Input>;

impl Gateway {
    /// Opens the input of a running command. The future ends when the sandbox has taken all of it; dropping it closes the stream.
    pub(crate) fn input(&self, session: Selector) -> (InputStream, impl Future<Output = Result<(), GatewayError>>) {
        let (sender, receiver) = mpsc::channel(PIECES_QUEUED_MAX);
        let start = StreamInputEvent::Start(StreamInputStart {
            session: Some(CommandSessionSelector { selector: Some(session) }),
        });
        let pieces =
            stream::unfold(receiver, async |mut receiver| receiver.recv().await.map(|piece| (piece, receiver)));
        let data = pieces
            .map(|input| StreamInputEvent::Data(StreamInputData { input: Some(CommandInput { input: Some(input) }) }));
        let frames = stream::once(async { start }).chain(data).map(|event| Ok::<_, Infallible>(frame(event)));
        let call = self.input_call(reqwest::Body::wrap_stream(frames));
        let gateway = self.clone();
        (sender, async move {
            // The one answer says nothing; what went wrong stands in the frame that ends the stream.
            let mut answer = gateway.send(call).await.map(Session::new)?;
            while answer.next().await?.is_some() {}
            Ok(())
        })
    }
}

fn frame(event: StreamInputEvent) -> Bytes {
    envelope(0, &StreamInputRequest { event: Some(event) }.encode_to_vec())
}
