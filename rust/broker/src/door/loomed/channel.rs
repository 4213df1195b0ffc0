//! The standard library's channel, as far as the broker uses it: loom's own can neither wait with a time limit nor tell
//! that all senders are gone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SendError, TryRecvError};
use std::time::Duration;

use super::super::sync::{Condvar, Mutex};

#[derive(Debug)]
struct State<T> {
    values: VecDeque<T>,
    senders: usize,
    has_receiver: bool,
}

#[derive(Debug)]
struct Channel<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Channel<T> {
    fn with<R>(&self, act: impl FnOnce(&mut State<T>) -> R) -> R {
        act(&mut self.state.lock().expect("nobody panics with the lock"))
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender<T>(Arc<Channel<T>>);

/// The receiving half.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Channel<T>>);

/// A channel without a bound.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = Mutex::new(State { values: VecDeque::new(), senders: 1, has_receiver: true });
    let channel = Arc::new(Channel { state, changed: Condvar::new() });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

impl<T> Sender<T> {
    /// Sends a value.
    ///
    /// # Errors
    /// Nobody will receive it.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.with(|state| match state.has_receiver {
            true => {
                state.values.push_back(value);
                Ok(())
            }
            false => Err(SendError(value)),
        })?;
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.with(|state| state.senders += 1);
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.with(|state| state.senders -= 1);
        self.0.changed.notify_all();
    }
}

impl<T> Receiver<T> {
    /// Waits for a value, without a time limit.
    ///
    /// # Errors
    /// All senders are gone.
    pub fn recv_timeout(&self, _: Duration) -> Result<T, RecvTimeoutError> {
        let mut state = self.0.state.lock().expect("nobody panics with the lock");
        loop {
            if let Some(value) = state.values.pop_front() {
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            state = self.0.changed.wait(state).expect("nobody panics with the lock");
        }
    }
}

impl<T> Receiver<T> {
    /// Takes a value, if there is one.
    ///
    /// # Errors
    /// There is none now, or all senders are gone.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state.lock().expect("nobody panics with the lock");
        let none = if state.senders == 0 { TryRecvError::Disconnected } else { TryRecvError::Empty };
        state.values.pop_front().ok_or(none)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = self.0.with(|state| {
            state.has_receiver = false;
            std::mem::take(&mut state.values)
        });
        drop(left);
    }
}
