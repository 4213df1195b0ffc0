//! Pauses a SEND that arrives in parts if it would have to wait once it is complete. Other conditions are in
//! [`crate::connection::unfinished`].

use stompica_proto::decode::head_value;
use stompica_proto::header;

use super::Owners;
use crate::connection::pausing::Pause;
use crate::connection::unfinished::send_head;
use crate::delivery::admission::Load;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::router::reach::Reach;

impl Owners<'_> {
    /// The reason to pause a connection that has sent a part of a frame, if there is one.
    pub(crate) fn pause_arrival(&mut self, key: ConnKey) -> Option<Pause> {
        if !self.connections.may_hold_arrival(self.turn, key)
            || (self.delivery().may_exceed(key) && !planted!("consumer-waits-to-arrive"))
        {
            return None;
        }
        let pause = self.pause_when_complete(key);
        pause.or_else(|| self.connections.waits_to_arrive(key).then_some(Pause::Arriving))
    }

    /// The reason why the SEND that is arriving would have to wait if it were complete, judged by its head.
    fn pause_when_complete(&mut self, key: ConnKey) -> Option<Pause> {
        let conn = self.connections.table.get(key)?;
        let head = send_head(&conn.input.bytes)?;
        self.turn.budget.visit(1 + head.len() / 256);
        let name = head_value(head, header::DESTINATION).filter(|name| !name.contains(&b'\\'))?.to_vec();
        let kept = [header::TRANSACTION, header::RETAIN].iter().any(|name| head_value(head, name).is_some());
        let bytes = conn.input.arrival.announced();
        let name = self.name_to_send_to(key, &name).ok()?;
        let destination = self.router.destination_of(self.turn, &name).ok()?;
        let Reach { remote: shards, fan_out_size, is_full, .. } =
            self.router.reach_of_any(destination, self.turn.id);
        self.delivery()
            .pause_for(key, &Load { name: &name, destination, shards, fan_out_size, is_full, bytes, kept })
    }
}
