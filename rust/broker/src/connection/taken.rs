//! How much of what was written to a socket its peer has not taken yet.

use mio::net::TcpStream;

use super::conn::Conn;

impl Conn {
    /// Notes whether the peer has taken some of what the socket held when this was last called.
    pub fn look_at_socket(&mut self, now_ms: u64) {
        let untaken = untaken(&self.stream);
        if untaken < self.untaken {
            self.taken_ms = now_ms;
        }
        self.untaken = untaken;
    }

    /// When the peer took something last, as far as is known.
    #[must_use]
    pub fn moved_ms(&self) -> u64 {
        self.written_ms.max(self.taken_ms)
    }
}

/// Bytes that the kernel still holds of what was written; 0 where it does not say.
///
/// A socket can be written to again only once a good part of its buffer is free, which may be megabytes: a peer that reads
/// steadily takes seconds for that, and is not stuck.
#[cfg(target_os = "linux")]
#[must_use]
fn untaken(stream: &TcpStream) -> u32 {
    use std::os::fd::AsRawFd as _;

    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as the stream is, and TIOCOUTQ writes one int, to which the pointer leads.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { bytes.unsigned_abs() } else { 0 }
}

/// Bytes that the kernel still holds of what was written; 0 where it does not say.
#[cfg(not(target_os = "linux"))]
#[must_use]
fn untaken(_stream: &TcpStream) -> u32 {
    0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_the_peer_takes_is_seen_before_the_socket_can_be_written_to() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let peer = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("room");
        let (mut reader, _) = listener.accept().expect("one has come");
        peer.set_nonblocking(true).expect("a socket");
        let mut stream = TcpStream::from_std(peer);
        while stream.write(&[0; 1 << 16]).is_ok() {}
        let full = untaken(&stream);
        assert!(full > 0);
        // All that the reader's kernel has, so that it takes more of this one's.
        let mut taken = vec![0; 8 << 20];
        reader.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("a socket");
        while untaken(&stream) >= full {
            assert!(reader.read(&mut taken).expect("there is more") > 0);
        }
    }
}
