//! The doors of the shipped build: the system's own types and calls.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
pub use std::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use mio::net::{TcpListener, TcpStream};
pub use mio::{Events, Interest, Poll, Registry, Token, Waker};
use rand::Rng as _;
use socket2::{Domain, Protocol, Socket, Type};

/// The maximum of connections that wait in the kernel.
const BACKLOG: i32 = 4096;

/// Keys of hash tables; each default value has different ones, so that nobody outside can choose names that collide.
pub type HashState = foldhash::fast::RandomState;

/// The keys of the table that decides which shard is the home of a name.
#[must_use]
pub fn hash_state() -> HashState {
    HashState::default()
}

/// The time since 1970.
#[must_use]
pub fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Processor time of this thread; zero if the system does not report it.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable `timespec` for the whole call; clock_gettime keeps no pointer.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0 {
        return Duration::ZERO;
    }
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes that nobody outside can predict.
#[must_use]
pub fn random_bytes<const BYTES: usize>() -> [u8; BYTES]
where
    rand::distr::StandardUniform: rand::distr::Distribution<[u8; BYTES]>,
{
    rand::rng().random()
}

/// Listens on an address, with room for many waiting connections.
///
/// # Errors
/// The address cannot be bound.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// A descriptor that is closed when one is needed.
#[derive(Debug)]
pub struct SpareDescriptor {
    _file: File,
}

impl SpareDescriptor {
    /// Opens one, unless there is none left.
    #[must_use]
    pub fn open() -> Option<Self> {
        File::open("/dev/null").ok().map(|file| SpareDescriptor { _file: file })
    }
}

/// Written bytes that the kernel still holds; `None` if it does not report them.
///
/// A socket becomes writable again only once a good part of its buffer is free, which may be megabytes: a peer that
/// reads steadily needs seconds for that, and is not stuck.
#[cfg(target_os = "linux")]
#[must_use]
pub fn untaken_bytes(stream: &TcpStream) -> Option<u32> {
    use std::os::fd::AsRawFd as _;

    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as the stream exists, and TIOCOUTQ writes one int to the given pointer.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    (result == 0).then_some(bytes.unsigned_abs())
}

/// Written bytes that the kernel still holds; `None` if it does not report them.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn untaken_bytes(_stream: &TcpStream) -> Option<u32> {
    None
}

/// The number by which the limits of a turn are divided: in fuzz targets, whose inputs are short, work has to go over
/// several turns, too.
#[inline(always)]
#[must_use]
pub const fn turn_divisor() -> usize {
    if cfg!(fuzzing) { 200 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_the_thread_advances() {
        let before = thread_cpu_time();
        while thread_cpu_time() == before {
            std::hint::spin_loop();
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_bytes_that_a_peer_has_not_taken_are_counted() {
        use std::io::{Read as _, Write as _};

        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let peer =
            std::net::TcpStream::connect(listener.local_addr().expect("a bound address")).expect("room");
        let (mut reader, _) = listener.accept().expect("a waiting connection");
        peer.set_nonblocking(true).expect("an open socket");
        let mut stream = TcpStream::from_std(peer);
        while stream.write(&[0; 1 << 16]).is_ok() {}
        let full = untaken_bytes(&stream);
        assert!(full.is_some_and(|bytes| bytes > 0));
        // Reads all that the receiving kernel has, so that it takes more from the sending one.
        let mut taken = vec![0; 8 << 20];
        reader.set_read_timeout(Some(Duration::from_secs(5))).expect("an open socket");
        while untaken_bytes(&stream) >= full {
            assert!(reader.read(&mut taken).expect("more data") > 0);
        }
    }
}
