//! One question of the guest, and the messages that answer it. Pure.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use std::net::Ipv4Addr;
use warren_model::egress::HostName;

/// Payload that every DNS client takes by UDP, bytes.
const PAYLOAD_MIN: u16 = 512;
/// Time to live of answers that are made here, seconds.
const LOCAL_TTL: u32 = 60;

/// A question.
#[derive(Debug, Clone)]
pub(super) struct Query {
    id: u16,
    question: Question,
    recursion_desired: bool,
    checking_disabled: bool,
    edns: Option<Edns>,
    /// The name in canonical form; `None` if it is no host name.
    pub(super) name: Option<HostName>,
}

/// Bytes that are no question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoQuery {
    /// They deserve no answer.
    Ignored,
    /// They deserve this answer.
    Answered(Vec<u8>),
}

/// Kinds of question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// IPv4 addresses.
    Addresses,
    /// What the guest has no use for: IPv6 addresses, and service bindings, which carry addresses and the keys that would hide a TLS server name.
    Unused,
    /// All others.
    Other,
}

impl Query {
    /// Reads a question.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, NoQuery> {
        let message = Message::from_vec(bytes).map_err(|_| NoQuery::Ignored)?;
        let head = message.metadata;
        if head.message_type != MessageType::Query {
            return Err(NoQuery::Ignored);
        }
        let refuse = |code| NoQuery::Answered(encode(&Message::error_msg(head.id, head.op_code, code)));
        if head.op_code != OpCode::Query {
            return Err(refuse(ResponseCode::NotImp));
        }
        let [question] = &message.queries[..] else { return Err(refuse(ResponseCode::FormErr)) };
        if question.query_class() != DNSClass::IN {
            return Err(refuse(ResponseCode::Refused));
        }
        Ok(Self {
            id: head.id,
            name: HostName::parse(&question.name().to_ascii()).ok(),
            question: question.clone(),
            recursion_desired: head.recursion_desired,
            checking_disabled: head.checking_disabled,
            edns: message.edns.map(plain_edns),
        })
    }

    /// What is asked for.
    pub(super) fn kind(&self) -> Kind {
        match self.question.query_type() {
            RecordType::A => Kind::Addresses,
            RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB => Kind::Unused,
            _ => Kind::Other,
        }
    }

    /// Largest answer that the guest takes by UDP, bytes.
    pub(super) fn payload_max(&self) -> usize {
        usize::from(self.edns.as_ref().map_or(PAYLOAD_MIN, Edns::max_payload).max(PAYLOAD_MIN))
    }

    /// The same question under another id, for an upstream.
    pub(super) fn to_upstream(&self, id: u16) -> Vec<u8> {
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.checking_disabled = self.checking_disabled;
        message.add_query(self.question.clone());
        message.edns = self.edns.clone();
        encode(&message)
    }

    /// Whether `message` answers [`Query::to_upstream`] of this id.
    pub(super) fn is_answered_by(&self, message: &Message, id: u16) -> bool {
        message.metadata.id == id
            && message.metadata.message_type == MessageType::Response
            && message.queries.len() == 1
            && message.queries.iter().all(|question| *question == self.question)
    }

    /// An upstream's answer, under the guest's id.
    pub(super) fn relayed(&self, mut answer: Vec<u8>) -> Vec<u8> {
        if let Some(id) = answer.first_chunk_mut::<2>() {
            *id = self.id.to_be_bytes();
        }
        answer
    }

    /// An answer without records.
    pub(super) fn empty(&self, code: ResponseCode) -> Vec<u8> {
        let mut message = self.response();
        message.metadata.response_code = code;
        encode(&message)
    }

    /// An answer that says: ask again by TCP.
    pub(super) fn truncated(&self) -> Vec<u8> {
        let mut message = self.response();
        message.metadata.truncation = true;
        encode(&message)
    }

    /// An answer with addresses.
    pub(super) fn addresses(&self, addresses: &[Ipv4Addr]) -> Vec<u8> {
        let mut message = self.response();
        message.add_answers(
            addresses
                .iter()
                .map(|&address| Record::from_rdata(self.question.name().clone(), LOCAL_TTL, RData::A(A(address)))),
        );
        encode(&message)
    }

    fn response(&self) -> Message {
        let mut message = Message::response(self.id, OpCode::Query);
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.recursion_available = true;
        message.add_query(self.question.clone());
        message.edns = self.edns.clone();
        message
    }
}

/// The payload size and the DNSSEC flag of a question; its options stay here.
fn plain_edns(edns: Edns) -> Edns {
    let mut plain = Edns::new();
    plain.set_max_payload(edns.max_payload());
    plain.set_dnssec_ok(edns.flags().dnssec_ok);
    plain
}

/// The IPv4 addresses of an answer, with their times to live in seconds.
pub(super) fn addresses_of(answer: &Message) -> impl Iterator<Item = (Ipv4Addr, u32)> {
    answer.answers.iter().filter_map(|record| match record.data {
        RData::A(A(address)) => Some((address, record.ttl)),
        _ => None,
    })
}

/// The bytes of a message made here; empty, which no client takes for an answer, if it cannot be encoded.
fn encode(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::Name;
    use proptest::prelude::*;

    fn question(name: &str, kind: RecordType) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Question::query(Name::from_ascii(name).unwrap(), kind));
        message.to_vec().unwrap()
    }

    #[test]
    fn a_question_goes_on_under_another_id_and_its_answer_comes_back_under_its_own() {
        let query = Query::parse(&question("A.Example.", RecordType::A)).unwrap();
        assert_eq!(query.name.as_ref().map(HostName::as_str), Some("a.example"));
        assert_eq!((query.kind(), query.payload_max()), (Kind::Addresses, 512));
        let upstream = Query::parse(&query.to_upstream(9)).unwrap();
        let address = Ipv4Addr::new(1, 2, 3, 4);
        let answer = upstream.addresses(&[address]);
        let message = Message::from_vec(&answer).unwrap();
        assert!(query.is_answered_by(&message, 9) && !query.is_answered_by(&message, 8));
        assert_eq!(addresses_of(&message).collect::<Vec<_>>(), [(address, LOCAL_TTL)]);
        assert_eq!(Message::from_vec(&query.relayed(answer)).unwrap().metadata.id, 7);
        let other = Query::parse(&question("b.example.", RecordType::A)).unwrap();
        assert!(!other.is_answered_by(&message, 9));
    }

    #[test]
    fn answers_without_records() {
        let query = Query::parse(&question("a.example.", RecordType::AAAA)).unwrap();
        assert_eq!(query.kind(), Kind::Unused);
        let refused = Message::from_vec(&query.empty(ResponseCode::Refused)).unwrap();
        assert_eq!((refused.metadata.id, refused.metadata.response_code), (7, ResponseCode::Refused));
        assert_eq!(refused.queries.len(), 1);
        assert!(Message::from_vec(&query.truncated()).unwrap().metadata.truncation);
    }

    #[test]
    fn what_is_no_question() {
        let query = Query::parse(&question("a.example.", RecordType::A)).unwrap();
        assert_eq!(Query::parse(&query.truncated()).unwrap_err(), NoQuery::Ignored);
        assert_eq!(Query::parse(b"?").unwrap_err(), NoQuery::Ignored);
        let none = Message::new(7, MessageType::Query, OpCode::Query).to_vec().unwrap();
        assert!(matches!(Query::parse(&none), Err(NoQuery::Answered(_))));
    }

    #[test]
    fn a_name_that_is_no_host_name_has_none() {
        let mut spaced = question("a-b.example.", RecordType::A);
        spaced.iter_mut().filter(|byte| **byte == b'-').for_each(|byte| *byte = b' ');
        assert_eq!(Query::parse(&spaced).unwrap().name, None);
        assert_eq!(Query::parse(&question(".", RecordType::NS)).unwrap().name, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, cut in 0usize..40) {
            _ = Query::parse(&bytes);
            let mut spoilt = question("a.example.", RecordType::A);
            spoilt.truncate(spoilt.len().saturating_sub(cut));
            spoilt.extend(bytes);
            _ = Query::parse(&spoilt);
        }
    }
}
