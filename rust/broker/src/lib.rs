//! The stompica broker.
