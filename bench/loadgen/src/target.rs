//! What is measured: a broker, or the ideal relay, that listens.

use std::net::SocketAddr;

use crate::login::Login;

/// A broker or relay that listens.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// The address it listens on.
    pub address: SocketAddr,
    /// Its process, if CPU and memory are to be read.
    pub pid: Option<u32>,
    /// How clients log in there.
    pub login: Login,
    /// It is the ideal relay, which forwards SEND frames as they are.
    pub is_relay: bool,
}
