//! A periodic timer for the poll: epoll's own timeout is too coarse for 1,000 messages a second.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::{Duration, Instant};

/// A running timer.
pub struct Timer(File);

impl Timer {
    /// Starts it. It fires at every multiple of `interval` after the returned moment.
    pub fn start(interval: Duration) -> io::Result<(Timer, Instant)> {
        // SAFETY: no pointers; the descriptor is checked below.
        let descriptor =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        let file = unsafe { File::from_raw_fd(descriptor) };
        let seconds = libc::time_t::try_from(interval.as_secs()).map_err(io::Error::other)?;
        let time = libc::timespec { tv_sec: seconds, tv_nsec: interval.subsec_nanos().into() };
        let setting = libc::itimerspec { it_interval: time, it_value: time };
        let start = Instant::now();
        // SAFETY: the descriptor is open, `setting` lives through the call, and the old setting is not requested.
        let result = unsafe { libc::timerfd_settime(descriptor, 0, &setting, std::ptr::null_mut()) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((Timer(file), start))
    }

    /// The descriptor to register for reading.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Consumes the ticks so far, so that the next one wakes the poll.
    pub fn acknowledge(&self) {
        let mut ticks = [0; 8];
        // Nothing to read only means that there was no tick since.
        let _ = (&self.0).read(&mut ticks);
    }
}
