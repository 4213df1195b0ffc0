//! A work queue peer that makes one mistake on request, which the generator must notice.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The peer's mistake, and the message (counted from 0) that it concerns.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each test program makes some of them")]
pub enum Wrong {
    Nothing,
    /// It is never delivered.
    Lose(usize),
    /// It is delivered twice, perhaps to different consumers.
    Double(usize),
    /// It is delivered after the one that follows it.
    Swap(usize),
    /// Its ACK is ignored: it is delivered again when its consumer has left.
    ForgetAck(usize),
    /// Its RECEIPT comes twice.
    DoubleReceipt(usize),
}

/// Queues and consumers of one peer. Each connection has a thread; all share one lock.
struct Peer {
    wrong: Wrong,
    sent: usize,
    /// The message that is to follow its successor.
    late: Option<Vec<u8>>,
    queues: HashMap<String, VecDeque<(usize, Vec<u8>)>>,
    consumers: Vec<Consumer>,
    turn: usize,
}

struct Consumer {
    conn: usize,
    id: String,
    queue: String,
    individual: bool,
    credit: usize,
    inflight: HashMap<usize, Vec<u8>>,
    stream: TcpStream,
}

/// Starts the peer; it ends with the process.
pub fn start(wrong: Wrong) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (queues, consumers) = (HashMap::new(), Vec::new());
    let peer = Peer { wrong, sent: 0, late: None, queues, consumers, turn: 0 };
    let peer = Arc::new(Mutex::new(peer));
    std::thread::spawn(move || {
        for (conn, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let peer = Arc::clone(&peer);
            std::thread::spawn(move || serve(conn, stream, &peer));
        }
    });
    address
}

fn serve(conn: usize, mut stream: TcpStream, peer: &Mutex<Peer>) {
    stream.set_nodelay(true).expect("it is a TCP socket");
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 65_536]);
    while let Some(size) = stream.read(&mut chunk).ok().filter(|&size| size > 0) {
        bytes.extend_from_slice(&chunk[..size]);
        let mut at = 0;
        // The generator's bodies contain no NUL.
        while let Some(length) = bytes[at..].iter().position(|&octet| octet == 0) {
            let frame = String::from_utf8(bytes[at..at + length].to_vec()).expect("text");
            let mut peer = peer.lock().expect("nobody panics while holding it");
            peer.take(conn, frame.trim_start(), &stream);
            at += length + 1;
        }
        bytes.drain(..at);
        peer.lock().expect("nobody panics while holding it").deliver();
    }
    peer.lock().expect("nobody panics while holding it").leave(conn, None);
}

impl Peer {
    fn take(&mut self, conn: usize, frame: &str, mut stream: &TcpStream) {
        let (head, body) = frame.split_once("\n\n").expect("a whole frame");
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        match head.lines().next().expect("a command") {
            "CONNECT" => stream.write_all(b"CONNECTED\nversion:1.2\n\n\0").expect("it reads"),
            "SEND" => self.send(header("destination:"), body.as_bytes().to_vec()),
            "DIAG" => self.diag(stream),
            "SUBSCRIBE" if header("destination:") == "/queue/monitor" => self.monitor(stream),
            "SUBSCRIBE" => self.consumers.push(Consumer {
                conn,
                id: header("id:").to_owned(),
                queue: header("destination:").to_owned(),
                individual: header("ack:") == "client-individual",
                credit: header("prefetch-count:").parse().unwrap_or(usize::MAX),
                inflight: HashMap::new(),
                stream: stream.try_clone().expect("a descriptor is free"),
            }),
            "UNSUBSCRIBE" => self.leave(conn, Some(header("id:"))),
            "ACK" => {
                let id = header("id:").parse().expect("an id of ours");
                let one = self.consumers.iter_mut().find(|one| one.conn == conn).expect("it consumes");
                if self.wrong != Wrong::ForgetAck(id) {
                    one.inflight.remove(&id).expect("it is acknowledged once");
                }
                one.credit += 1;
            }
            "DISCONNECT" => self.leave(conn, None),
            other => panic!("{other}"),
        }
        self.deliver();
        if !header("receipt:").is_empty() {
            let receipt = format!("RECEIPT\nreceipt-id:{}\n\n\0", header("receipt:"));
            let times = if self.wrong == Wrong::DoubleReceipt(self.sent) { 2 } else { 1 };
            stream.write_all(receipt.repeat(times).as_bytes()).expect("it reads");
        }
    }

    /// As if each message were a group of its own, of 1,000 bytes.
    fn diag(&self, mut stream: &TcpStream) {
        let sent = self.sent;
        let text = format!("{{\"groups\":{sent},\"syncs\":{sent},\"written_bytes\":{}}}", sent * 1_000);
        let frame = format!("DIAG\nquery:store\ncontent-length:{}\n\n{text}\0", text.len());
        stream.write_all(frame.as_bytes()).expect("it reads");
    }

    fn send(&mut self, destination: &str, body: Vec<u8>) {
        let number = self.sent;
        self.sent += 1;
        let queue = self.queues.entry(destination.to_owned()).or_default();
        let late = self.late.take().map(|body| (number - 1, body));
        match self.wrong {
            Wrong::Lose(at) if at == number => return,
            Wrong::Double(at) if at == number => queue.push_back((number, body.clone())),
            Wrong::Swap(at) if at == number => {
                self.late = Some(body);
                return;
            }
            _ => {}
        }
        queue.push_back((number, body));
        queue.extend(late);
    }

    fn monitor(&self, mut stream: &TcpStream) {
        let one = |(name, queue): (&String, &VecDeque<_>)| {
            format!("Queue: {name}\nsize: {}\ndequeued: 1\nenqueued: 1\n\n", queue.len())
        };
        let text: String = self.queues.iter().map(one).collect();
        let frame = format!("MESSAGE\nsubscription:monitor\ncontent-length:{}\n\n{text}\0", text.len());
        stream.write_all(frame.as_bytes()).expect("it reads");
    }

    /// Distributes messages to the consumers in turn.
    fn deliver(&mut self) {
        while let Some((index, number, body)) = self.next() {
            let one = &mut self.consumers[index];
            let frame = format!(
                "MESSAGE\nsubscription:{}\nmessage-id:{number}\nack:{number}\ndestination:{}\ncontent-length:{}\n\n",
                one.id,
                one.queue,
                body.len()
            );
            one.stream.write_all(&[frame.as_bytes(), &body, b"\0"].concat()).expect("it reads");
            one.credit -= 1;
            if one.individual {
                one.inflight.insert(number, body);
            }
        }
    }

    fn next(&mut self) -> Option<(usize, usize, Vec<u8>)> {
        for step in 0..self.consumers.len() {
            let index = (self.turn + step) % self.consumers.len();
            let one = &self.consumers[index];
            if one.credit > 0
                && let Some((number, body)) = self.queues.get_mut(&one.queue).and_then(VecDeque::pop_front)
            {
                self.turn = index + 1;
                return Some((index, number, body));
            }
        }
        None
    }

    /// Removes consumers of a connection; messages that they did not acknowledge go back to their old place.
    fn leave(&mut self, conn: usize, id: Option<&str>) {
        let goes = |one: &Consumer| one.conn == conn && id.is_none_or(|id| one.id == id);
        for one in self.consumers.extract_if(.., |one| goes(one)) {
            let queue = self.queues.entry(one.queue).or_default();
            queue.extend(one.inflight);
            queue.make_contiguous().sort_by_key(|entry| entry.0);
        }
    }
}
