//! Shards: several clients say frames of all kinds, come, pause and go; the broker keeps its promises whatever they say.
//!
//! Input: one octet for the settings, then the steps of the play; see `rust/broker/src/by_hand/scenario.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| stompica_broker::by_hand::scenario::run(input));
