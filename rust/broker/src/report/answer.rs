//! Rendering of an answer: as JSON, as headers of a MESSAGE, and as a DIAG frame.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Serialize, Serializer};
use stompica_proto::{Version, encode, escape};

use super::Query;
use super::merge::Report;
use super::stages::{Histogram, Stage};
use super::types::Benchmark;

/// The answer to one query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The query.
    pub query: Query,
    /// Rows left out for lack of room.
    pub left_out: u64,
    report: Report,
    /// The text of the rows, if it was assembled already.
    text: Option<String>,
}

#[derive(Serialize)]
struct StageJson {
    count: u64,
    total_ns: u64,
    buckets: Vec<(u64, u64, u64)>,
}

#[derive(Serialize)]
struct BenchmarkJson<'a> {
    enabled_ms_left: u64,
    stages: StagesJson<'a>,
}

impl Serialize for Benchmark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        BenchmarkJson { enabled_ms_left: self.left_ms, stages: StagesJson(&self.stages) }
            .serialize(serializer)
    }
}

/// An object that maps the names of stages to their times, in the order of [`Stage::ALL`].
struct StagesJson<'a>(&'a [Histogram]);

impl Serialize for StagesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Stage::ALL.into_iter().zip(self.0).map(|(stage, times)| (stage.name(), times)))
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let buckets = self.buckets().collect();
        StageJson { count: self.count, total_ns: self.total_ns, buckets }.serialize(serializer)
    }
}

pub(crate) fn json(value: &impl Serialize) -> String {
    // It cannot fail: the values are numbers, strings, and lists and objects of them.
    serde_json::to_string(value).unwrap_or_default()
}

/// Appends a header line; a character that `version` cannot encode becomes `?`.
fn header(out: &mut Vec<u8>, name: &str, value: &str, version: Version) {
    if escape::can_carry(name.as_bytes(), value.as_bytes(), version) {
        encode::header(out, name.as_bytes(), value.as_bytes(), version);
    } else {
        let value = if value.is_empty() { " ".to_owned() } else { value.replace('\n', "?") };
        encode::header(out, name.as_bytes(), value.as_bytes(), version);
    }
}

impl Answer {
    /// An answer with the merged reports of all shards.
    #[must_use]
    pub fn new(query: Query, report: Report) -> Self {
        Answer { query, left_out: 0, report, text: None }
    }

    /// An answer whose rows are assembled already, in the form that is used in a frame.
    #[must_use]
    pub fn of_text(query: Query, text: String, left_out: u64) -> Self {
        Answer { query, left_out, report: Report::Subs(BTreeSet::new()), text: Some(text) }
    }

    /// Assembles the text, once for all receivers.
    #[must_use]
    pub fn written(mut self) -> Self {
        self.text = Some(self.value().into_owned());
        self
    }

    /// Length of the text in bytes; 0 before it is assembled.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.as_ref().map_or(0, String::len)
    }

    /// The merged report.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The answer as JSON: an object, a number or a list.
    #[must_use]
    pub fn json(&self) -> String {
        self.text().into_owned()
    }

    fn text(&self) -> Cow<'_, str> {
        match &self.text {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(self.json_of_report()),
        }
    }

    fn json_of_report(&self) -> String {
        match &self.report {
            Report::Session(session) => match self.query {
                Query::SessionSize => session.clients.to_string(),
                Query::SessionEncodedSize => session.websockets.to_string(),
                Query::SessionConnectedSize => session.stomp_connected.to_string(),
                _ => json(session),
            },
            Report::Subscribed(hashes) => hashes.len().to_string(),
            report => json(report),
        }
    }

    /// The answer as a header's value: JSON, except that names are separated by commas.
    fn value(&self) -> Cow<'_, str> {
        match &self.report {
            Report::Subs(names) if self.query == Query::Subs && self.text.is_none() => {
                Cow::Owned(names.iter().map(String::as_str).collect::<Vec<_>>().join(","))
            }
            _ => self.text(),
        }
    }

    /// The answer as header lines with the escapes of 1.2: one line per number for the queries of C stompica.
    #[must_use]
    pub fn header_lines(&self) -> Vec<u8> {
        let rows = match &self.report {
            Report::Session(session) if self.query == Query::Session => vec![
                ("clients", session.clients),
                ("websockets", session.websockets),
                ("stomp_connected", session.stomp_connected),
                ("subscriptions", session.subscriptions),
            ],
            Report::WsBuffer(buffer) => {
                vec![("allocated", buffer.allocated), ("hits", buffer.hits), ("misses", buffer.misses)]
            }
            Report::Stale(waiting) => vec![
                ("input-queue-size", waiting.r#in),
                ("output-queue-size", waiting.out),
                ("stale-queue-size", waiting.stale),
            ],
            _ => Vec::new(),
        };
        let mut lines = Vec::new();
        for (name, number) in &rows {
            header(&mut lines, name, &number.to_string(), Version::V1_2);
        }
        if !self.query.is_from_c_stompica() {
            header(&mut lines, "query", self.query.name(), Version::V1_2);
            lines.extend_from_slice(b"content-type:application/json\n");
            self.append_left_out(&mut lines, Version::V1_2);
        } else if rows.is_empty() {
            header(&mut lines, self.query.name(), &self.value(), Version::V1_2);
        }
        lines
    }

    /// The body of the MESSAGE.
    #[must_use]
    pub fn body(&self) -> Cow<'_, str> {
        if self.query.is_from_c_stompica() { Cow::Borrowed(self.query.name()) } else { self.text() }
    }

    fn append_left_out(&self, out: &mut Vec<u8>, version: Version) {
        if self.left_out > 0 {
            header(out, "left-out", &self.left_out.to_string(), version);
        }
    }

    /// Appends the DIAG frame that answers a DIAG frame: with one header, or with a JSON body.
    pub fn frame(&self, out: &mut Vec<u8>, version: Version) {
        out.extend_from_slice(b"DIAG\n");
        if self.query.is_from_c_stompica() {
            header(out, self.query.name(), &self.value(), version);
            out.extend_from_slice(b"\n\0");
            return;
        }
        let body = self.text();
        header(out, "query", self.query.name(), version);
        self.append_left_out(out, version);
        out.extend_from_slice(b"content-type:application/json\ncontent-length:");
        encode::decimal(out, body.len() as u64);
        out.extend_from_slice(b"\n\n");
        out.extend_from_slice(body.as_bytes());
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::{Memory, QueueRow, Session, Store, StoreFigures, StoreStatus, Waiting};
    use super::*;

    fn session(query: Query) -> Answer {
        let session = Session { clients: 3, websockets: 1, stomp_connected: 2, subscriptions: 4 };
        Answer::new(query, Report::Session(session))
    }

    fn frame(answer: &Answer, version: Version) -> String {
        let mut out = Vec::new();
        answer.frame(&mut out, version);
        String::from_utf8(out).expect("UTF-8")
    }

    // docs/behaviour.md, section 9
    #[test]
    fn an_answer_to_a_c_stompica_query_is_a_diag_frame_with_one_header() {
        for (query, expected) in [
            (Query::SessionSize, "DIAG\nsession-size:3\n\n\0"),
            (Query::SessionEncodedSize, "DIAG\nsession-encoded-size:1\n\n\0"),
            (Query::SessionConnectedSize, "DIAG\nsession-connected-size:2\n\n\0"),
            (
                Query::Session,
                "DIAG\nsession:{\"clients\":3,\"websockets\":1,\"stomp_connected\":2,\"subscriptions\":4}\n\n\0",
            ),
        ] {
            assert_eq!(frame(&session(query), Version::V1_0), expected);
        }
        assert!(frame(&session(Query::Session), Version::V1_1).contains("{\"clients\"\\c3,"));
        let names = ["/dup", "/q/*"].map(str::to_owned).into();
        let subs = Answer::new(Query::Subs, Report::Subs(names));
        assert_eq!(frame(&subs, Version::V1_2), "DIAG\nsubs:/dup,/q/*\n\n\0");
        assert_eq!(subs.json(), "[\"/dup\",\"/q/*\"]");
        let size = Answer::new(Query::PubsubSize, Report::Subscribed([1, 2].into()));
        assert_eq!(
            (frame(&size, Version::V1_2).as_str(), size.json()),
            ("DIAG\npubsub-size:2\n\n\0", "2".into())
        );
    }

    #[test]
    fn a_name_that_stomp_1_0_cannot_encode_does_not_break_the_frame() {
        let odd = Answer::new(Query::Subs, Report::Subs(["a\nb".to_owned()].into()));
        assert_eq!(frame(&odd, Version::V1_0), "DIAG\nsubs:a?b\n\n\0");
        assert_eq!(frame(&odd, Version::V1_2), "DIAG\nsubs:a\\nb\n\n\0");
        let none = Answer::new(Query::Subs, Report::Subs([].into()));
        assert_eq!(frame(&none, Version::V1_0), "DIAG\nsubs: \n\n\0");
        assert_eq!(frame(&none, Version::V1_2), "DIAG\nsubs:\n\n\0");
    }

    #[test]
    fn statistics_are_headers_with_the_names_that_c_stompica_uses() {
        let lines = |answer: &Answer| String::from_utf8(answer.header_lines()).expect("UTF-8");
        assert_eq!(
            lines(&session(Query::Session)),
            "clients:3\nwebsockets:1\nstomp_connected:2\nsubscriptions:4\n"
        );
        assert_eq!(lines(&session(Query::SessionSize)), "session-size:3\n");
        let stale = Answer::new(Query::Stale, Report::Stale(Waiting { r#in: 1, out: 2, stale: 3 }));
        assert_eq!(lines(&stale), "input-queue-size:1\noutput-queue-size:2\nstale-queue-size:3\n");
        assert_eq!((stale.json().as_str(), &*stale.body()), ("{\"in\":1,\"out\":2,\"stale\":3}", "stale"));
    }

    #[test]
    fn answers_to_other_queries_are_json() {
        let memory = Answer::new(Query::Memory, Report::Memory(Memory::default()));
        let body = "{\"held_bytes\":0,\"limit_bytes\":0,\"short\":false,\"outbox_bytes\":0,\"input_bytes\":0,\
                    \"chunk_bytes\":0,\"queue_bytes\":0}";
        let head = "DIAG\nquery:memory\ncontent-type:application/json\ncontent-length:";
        assert_eq!(frame(&memory, Version::V1_2), format!("{head}{}\n\n{body}\0", body.len()));
        assert_eq!(memory.header_lines(), b"query:memory\ncontent-type:application/json\n");
        let row = QueueRow { name: "/queue/\"a".to_owned(), kind: "work", ..QueueRow::default() };
        assert_eq!(
            Answer::new(Query::Queues, Report::Queues(vec![row])).json(),
            "[{\"name\":\"/queue/\\\"a\",\"kind\":\"work\",\"size\":0,\"waiting_bytes\":0,\"in_flight\":0,\
             \"consumers\":0,\"enqueued\":0,\"dequeued\":0}]"
        );
    }

    #[test]
    fn the_answer_about_the_store_is_one_flat_object() {
        let mut sync = Histogram::default();
        sync.add(5);
        let figures = StoreFigures { disk_bytes: 7, syncs: 1, ..StoreFigures::default() };
        let status = StoreStatus { state: "ready", reason: String::new(), figures, sync };
        let answer = Answer::new(Query::Store, Report::Store(Box::new(Store { kind: "file", status })));
        assert_eq!(
            answer.json(),
            "{\"kind\":\"file\",\"state\":\"ready\",\"reason\":\"\",\"disk_bytes\":7,\"reserve_bytes\":0,\
             \"needed_bytes\":0,\"unwritten_bytes\":0,\"written_bytes\":0,\"segments\":0,\"messages\":0,\
             \"paged_messages\":0,\"damages\":0,\"lost_messages\":0,\"groups\":0,\"syncs\":1,\
             \"sync\":{\"count\":1,\"total_ns\":5,\"buckets\":[[5,6,1]]}}"
        );
    }

    #[test]
    fn stages_are_named_and_have_their_non_empty_buckets() {
        let mut times = Histogram::default();
        times.add(5);
        times.add(100);
        let stages = vec![times; Stage::ALL.len()];
        let answer = Answer::new(Query::Benchmark, Report::Benchmark(Benchmark { left_ms: 7, stages }));
        let text = answer.json();
        assert!(
            text.starts_with("{\"enabled_ms_left\":7,\"stages\":{\"read\":{\"count\":2,\"total_ns\":105,")
        );
        assert!(text.contains("\"turn\":{\"count\":2,\"total_ns\":105,\"buckets\":[[5,6,1],[100,104,1]]}"));
    }
}
