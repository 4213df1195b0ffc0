//! Recovery of the store's log: whatever its files contain, it ends without a panic, and serves nothing that was not
//! written.
//!
//! Input: one byte for what the others are; see `rust/broker/src/simulation/recovery_scenario.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| stompica_broker::simulation::recovery_scenario::run(input));
