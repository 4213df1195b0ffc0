//! Tests of mailboxes.

use super::*;

#[test]
fn the_memory_of_many_mails_is_freed() {
    let poll = crate::door::Poll::new().expect("a poll");
    let mailbox = Mailbox::new(Waker::new(poll.registry(), crate::door::Token(0)).expect("a waker"));
    let (mut sent, mut read) = (Vec::new(), Vec::new());
    for many in [10_000, KEPT_MAILS] {
        sent.extend((0..many).map(|_| Mail::Closed));
        mailbox.post(&mut sent);
        mailbox.take(&mut read);
        assert_eq!((read.len(), sent.len()), (many, 0));
        read.clear();
        give_back(&mut read);
    }
    mailbox.take(&mut read);
    assert!([&sent, &read].iter().all(|mails| mails.capacity() <= KEPT_MAILS));
    assert!(mailbox.lock().capacity() <= KEPT_MAILS);
}

#[test]
fn a_batch_counts_itself_and_the_copies_of_its_receivers() {
    let (mut batch, memory) = (Batch::default(), Arc::new(AtomicI64::new(0)));
    let (body, shards) = ([0; 1000], 0b1110);
    let message = Message {
        destination: b"/t",
        id: b"0-0-1",
        sender: 7,
        headers: b"",
        plain: true,
        expires_ms: 0,
        body: &body,
    };
    batch.push(&message, shards, 0);
    batch.count_in(&memory);
    let counted = memory.load(Ordering::Relaxed);
    assert!((4000..5000).contains(&counted), "{counted}");
    drop(batch);
    assert_eq!(memory.load(Ordering::Relaxed), 0);
}

#[test]
fn each_shard_reads_its_own_messages_in_order() {
    let mut batch = Batch::default();
    for (number, shards) in [(1_u8, 0b01), (2, 0b11), (3, 0b10)] {
        let body = [number];
        let message = Message {
            destination: b"/t",
            id: b"0-0-1",
            sender: 7,
            headers: b"a:1\n",
            plain: true,
            expires_ms: 9,
            body: &body,
        };
        batch.push(&message, shards, 0);
    }
    assert_eq!((batch.shards(), batch.count_for(ShardId(0)), batch.count_for(ShardId(2))), (0b11, 2, 0));
    let mut read = Vec::new();
    let mut at = 0;
    while let Some((message, next)) = batch.next_for(ShardId(1), at) {
        assert_eq!(
            (message.destination, message.id, message.headers, message.expires_ms),
            (&b"/t"[..], &b"0-0-1"[..], &b"a:1\n"[..], 9)
        );
        read.push(message.body[0]);
        at = next;
    }
    assert_eq!(read, [2, 3]);
}
