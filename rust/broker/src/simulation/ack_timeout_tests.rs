//! Deliveries that `ack_timeout` takes back from a transaction.

use super::near_limit::last_ack_id;
use super::support::{broker, connect, exchange};
use crate::config::Config;

/// Seed 55012516: the transaction took effect without the acknowledgement of one of them.
#[test]
fn a_transaction_is_void_if_a_delivery_that_its_ack_covers_has_timed_out() {
    for (ack, is_void) in [("client", true), ("client-individual", false)] {
        for verdict in ["ACK", "NACK"] {
            let mut broker = broker(Config { ack_timeout_ms: 1000, ..Config::default() });
            let (mut consumer, mut publisher) = (connect(&mut broker, 0), connect(&mut broker, 0));
            consumer.send(format!("SUBSCRIBE\nid:0\nack:{ack}\ndestination:/queue/a\n\n\0").as_bytes());
            exchange(&mut broker, &mut consumer);
            for pause_ms in [600, 0] {
                publisher.send(b"SEND\ndestination:/queue/a\n\nx\0");
                exchange(&mut broker, &mut publisher);
                exchange(&mut broker, &mut consumer);
                broker.advance_ms(pause_ms);
            }
            let last = last_ack_id(&consumer);
            consumer.send(b"BEGIN\ntransaction:t\n\n\0");
            consumer.send(format!("{verdict}\nid:{last}\ntransaction:t\n\n\0").as_bytes());
            exchange(&mut broker, &mut consumer);
            broker.advance_ms(600);
            broker.run_until_idle();
            consumer.send(b"COMMIT\ntransaction:t\n\n\0");
            exchange(&mut broker, &mut consumer);
            let is_lost = consumer.received_frames().any(|head| head.contains("E-TX-LOST"));
            assert_eq!((is_lost, consumer.is_closed()), (is_void, is_void), "{ack} {verdict}");
        }
    }
}
