//! The router: subscriptions, interest and full outboxes come and go; each name must have the receivers that a plain
//! list gives it.
//!
//! Input: one byte for the settings, then the steps; see `rust/broker/src/simulation/router_scenario.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| stompica_broker::simulation::router_scenario::run(input));
