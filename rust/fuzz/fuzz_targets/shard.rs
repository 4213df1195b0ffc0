//! Whole shards: several clients connect, send frames of all kinds, pause and disconnect; no input may violate the
//! broker's guarantees.
//!
//! Input: one byte for the settings, then the steps of the scenario; see `rust/broker/src/simulation/scenario.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| stompica_broker::simulation::scenario::run(input));
