//! Transactions that hold several acknowledgements, and are committed.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::Compat;

use super::{Options, Pace, Private, Watching, one_of};

/// The number with which a seed draws this. With it, the seeds that were kept before draw none.
const OWN: u64 = 0x0513_a25a_0000_ff8b;

/// Changes some of the runs: in others, clients have received little when they begin a transaction, and end it soon.
pub(super) fn draw(options: &mut Options) {
    let random = &mut SmallRng::seed_from_u64(options.seed ^ OWN);
    if !random.random_ratio(1, 8) || options.rogues.pace > 0 || options.timing.is_late {
        return;
    }
    if options.queues.is_empty() && options.config.compat != Compat::Stompica {
        options.queues.push("/queue/0".to_owned());
    }
    options.timing.joins = one_of(random, &[50, 100]);
    options.acking.percent = options.acking.percent.max(one_of(random, &[0, 50]));
    (options.private, options.watching) = (Private::default(), Watching::default());
    // Clients that get messages fast hold many of them.
    options.body_max = options.body_max.min(300);
    (options.piece_max, options.buffer_bytes) =
        (options.piece_max.max(2_000), options.buffer_bytes.max(8_000));
    options.pace = Pace { act: 40, arrive: 30, receive: 20, turn: 40, pass: options.pace.pass };
    let weights = &mut options.weights;
    (weights.begin, weights.commit, weights.abort) = (4, one_of(random, &[2, 6]), weights.abort.min(1));
    (weights.send, weights.ack, weights.subscribe) = (20, 40, weights.subscribe.min(3));
    (weights.unsubscribe, weights.stall) = (weights.unsubscribe.min(1), weights.stall.min(1));
    (weights.disconnect, weights.reset) = (weights.disconnect.min(1), weights.reset.min(1));
    (weights.abandon, weights.finish) = (0, 0);
}
