//! Rogues: clients that break rules and strain limits, beside the polite ones of [`crate::client`]. They read strictly,
//! too: what the broker sends them has to be right, and each misdeed has to end their connection as documented.
//!
//! Their messages go to names that nobody else uses, or are told to the checkers like those of polite clients, or must
//! never arrive: then they begin with a number that no message has.

mod act;
mod bystanders;
mod crowd;
mod deeds;
mod exits;
mod http;
mod loads;
pub mod options;
mod reader;
mod stomp;
mod wire;

pub use bystanders::Bystanders;
pub use crowd::Crowd;
pub use deeds::{Deed, Ending, Heard, Misdeed};
