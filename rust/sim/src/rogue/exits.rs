//! How rogues leave: in order, or in the middle of a frame, or without a word.

use rand::Rng as _;
use stompica_broker::simulated::outside::Wire;

use super::act::{Act, Rogue, Stage};
use super::deeds::Deed;
use super::{stomp, wire};

impl Rogue {
    /// Ends the connection, in order or in the middle of a frame.
    pub(super) fn exit(&mut self, act: &mut Act<'_>) -> &'static str {
        if act.random.random_ratio(1, 2) {
            let (part, _) = stomp::part(self.version, act.random);
            self.send(&part, act.random);
        }
        match act.random.random_range(0..4) {
            0 => self.vanish(|wire| wire.reset()),
            1 => self.vanish(|wire| wire.abandon()),
            2 => {
                self.wire.finish();
                self.leave(1000);
            }
            _ if self.is_websocket => {
                let codes: [&[u8]; 3] = [&[], &[3, 232], &[15, 160, b'b']];
                let payload = codes[act.random.random_range(0..codes.len())];
                self.wire.send(&wire::frame(wire::LAST | wire::CLOSE, payload, [1, 2, 3, 4]));
                let code = payload.get(..2).map_or(1000, |code| u16::from(code[0]) << 8 | u16::from(code[1]));
                self.leave(code);
            }
            _ => {
                self.wire.finish();
                self.leave(1000);
            }
        }
        "exit"
    }

    /// Ends its side in order; over WebSocket this code has to come.
    pub(super) fn leave(&mut self, code: u16) {
        self.stage = Stage::Leaving;
        self.tell(Deed::Leaves(code));
    }

    pub(super) fn vanish(&mut self, act: impl FnOnce(&Wire)) {
        act(&self.wire);
        self.stage = Stage::Over;
        self.tell(Deed::Vanishes);
    }
}
