//! The router: subscriptions, interest and full outboxes come and go; each name must have the receivers that a plain
//! list gives it.
//!
//! Input: one byte for the settings, then the steps; see `rust/broker/src/by_hand/router_scenario.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| stompica_broker::by_hand::router_scenario::run(input));
