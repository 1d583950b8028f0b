//! What a guest says on its channel, beside HTTP/2: records, envelopes, ends of streams, JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warren_proto::guest::command_session::{EndOfStream, EnvelopeDecoder};
use warren_proto::guest::exchange::{Records, parse_pieces};
use warren_proto::guest::{GuestError, GuestStatus, InitDone, JobsAnswer};

fuzz_target!(|bytes: &[u8]| {
    let mut records = Records::default();
    let mut envelopes = EnvelopeDecoder::new(1 << 16);
    for part in bytes.chunks(13) {
        records.push(part);
        while let Some(record) = records.next_record() {
            let _ = record.filled_at();
        }
        envelopes.push(part);
        while let Ok(Some(_)) = envelopes.next() {}
    }
    let _ = envelopes.finish();
    let _ = EndOfStream::parse(bytes);
    let _ = serde_json::from_slice::<(GuestError, GuestStatus, InitDone, JobsAnswer)>(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = parse_pieces(text);
    }
});
