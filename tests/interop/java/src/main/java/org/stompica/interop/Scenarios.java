package org.stompica.interop;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Arrays;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.springframework.messaging.simp.stomp.ConnectionLostException;
import org.springframework.messaging.simp.stomp.StompHeaders;
import org.springframework.messaging.simp.stomp.StompSession;
import org.springframework.util.MimeTypeUtils;

/** Scenarios of the clients with the broker, for every transport. */
final class Scenarios {

    /** Milliseconds between heart-beats, both ways. */
    private static final long BEAT_MS = 1000;

    private Scenarios() {
    }

    /** Returns a connected session that requests a RECEIPT for each frame. */
    private static StompSession open(Connector connector, long beatMs, Events events) throws Exception {
        StompSession session = connector.connect(beatMs, events);
        session.setAutoReceipt(true);
        return session;
    }

    /** Returns a new topic to which the session is subscribed. */
    private static String subscribedTopic(StompSession session, Events events) throws Exception {
        String topic = newTopic();
        await(session.subscribe(topic, events.toMessages), "SUBSCRIBE");
        return topic;
    }

    /** Connects with heart-beats, subscribes, sends, gets receipts, disconnects. */
    static void exchange(Connector connector) throws Exception {
        Events events = new Events();
        StompSession session = open(connector, BEAT_MS, events);
        String topic = newTopic();
        StompSession.Subscription subscription = session.subscribe(topic, events.toMessages);
        await(subscription, "SUBSCRIBE");
        StompHeaders headers = to(topic);
        headers.add("colour", "blue");
        headers.set("content-type", "text/plain;charset=UTF-8");
        await(session.send(headers, "Grüße, 世界, 🜁".getBytes(UTF_8)), "SEND");
        Events.Frame message = Events.next(events.messages, "MESSAGE");
        equal("Grüße, 世界, 🜁", new String(message.body(), UTF_8));
        equal("blue", message.headers().getFirst("colour"));
        equal(topic, message.headers().getDestination());
        equal(subscription.getSubscriptionId(), message.headers().getSubscription());
        check(message.headers().getMessageId() != null, "the MESSAGE has no message-id");
        subscription.unsubscribe();
        await(session.send(to(topic), "no subscriber".getBytes(UTF_8)), "SEND");
        check(events.messages.isEmpty(), "a MESSAGE came after UNSUBSCRIBE");
        disconnect(session, events);
    }

    /** Header values that need escapes arrive unchanged. */
    static void escapes(Connector connector) throws Exception {
        Events events = new Events();
        StompSession session = open(connector, 0, events);
        String topic = subscribedTopic(session, events);
        StompHeaders headers = to(topic);
        headers.add("lines", "one\ntwo\r\nthree");
        headers.add("colon", "a:b:c");
        headers.add("path", "C:\\dir");
        session.send(headers, new byte[] {'x'});
        StompHeaders received = Events.next(events.messages, "MESSAGE").headers();
        for (String name : new String[] {"lines", "colon", "path"}) {
            equal(headers.getFirst(name), received.getFirst(name));
        }
        disconnect(session, events);
    }

    /** Heart-beats of both sides keep an idle connection open for longer than either side's timeout. */
    static void heartbeats(Connector connector) throws Exception {
        Events events = new Events();
        StompSession session = open(connector, BEAT_MS, events);
        Throwable failure = events.failures.poll(4 * BEAT_MS, TimeUnit.MILLISECONDS);
        check(failure == null, "the idle session ended: " + failure);
        await(session.send(to(newTopic()), "still here".getBytes(UTF_8)), "SEND");
        disconnect(session, events);
    }

    /** A body of all bytes arrives unchanged. */
    static void binary(Connector connector) throws Exception {
        Events events = new Events();
        StompSession session = open(connector, 0, events);
        String topic = subscribedTopic(session, events);
        byte[] body = new byte[32 * 1024];
        for (int index = 0; index < body.length; index++) {
            body[index] = (byte) index;
        }
        StompHeaders headers = to(topic);
        // Makes the WebSocket client send a binary message; in a text message it would replace what is not UTF-8.
        headers.setContentType(MimeTypeUtils.APPLICATION_OCTET_STREAM);
        session.send(headers, body);
        check(Arrays.equals(body, Events.next(events.messages, "MESSAGE").body()), "the body has changed");
        disconnect(session, events);
    }

    /** A negatively acknowledged message is delivered again; unacknowledged ones of a client that left go to the next. */
    static void acks(Connector connector) throws Exception {
        String queue = newQueue();
        Events events = new Events();
        StompSession first = open(connector, 0, events);
        await(subscribe(first, queue, "client-individual", events), "SUBSCRIBE");
        for (String body : new String[] {"1", "2", "3"}) {
            await(first.send(to(queue), body.getBytes(UTF_8)), "SEND");
        }
        Events.Frame[] messages = new Events.Frame[3];
        for (int index = 0; index < 3; index++) {
            messages[index] = Events.next(events.messages, "MESSAGE");
            equal(String.valueOf(index + 1), new String(messages[index].body(), UTF_8));
        }
        await(first.acknowledge(messages[1].headers().getAck(), true), "ACK");
        await(first.acknowledge(messages[0].headers().getAck(), false), "NACK");
        Events.Frame again = Events.next(events.messages, "MESSAGE");
        equal("1", new String(again.body(), UTF_8));
        equal("true", again.headers().getFirst("redelivered"));
        await(first.acknowledge(again.headers().getAck(), true), "ACK");
        disconnect(first, events);
        StompSession second = open(connector, 0, events);
        await(subscribe(second, queue, "auto", events), "SUBSCRIBE");
        again = Events.next(events.messages, "MESSAGE");
        equal("3", new String(again.body(), UTF_8));
        equal("2", again.headers().getFirst("delivery-count"));
        disconnect(second, events);
    }

    /** An ERROR has a reason and ends the connection. */
    static void errors(Connector connector) throws Exception {
        Events events = new Events();
        StompSession session = connector.connect(0, events);
        session.send(to(newTopic() + "/*"), "no destination".getBytes(UTF_8));
        StompHeaders error = Events.next(events.errors, "ERROR").headers();
        check(error.getFirst("message") != null, "the ERROR has no message");
        check(Objects.requireNonNullElse(error.getFirst("code"), "").startsWith("E-"), "the ERROR has no code");
        Throwable end = Events.next(events.failures, "end of the connection");
        check(end instanceof ConnectionLostException, "not a lost connection: " + end);
        check(!session.isConnected(), "the session is still connected");
    }

    static StompSession.Subscription subscribe(
            StompSession session, String destination, String ack, Events events) {
        StompHeaders headers = to(destination);
        headers.setAck(ack);
        return session.subscribe(headers, events.toMessages);
    }

    static void disconnect(StompSession session, Events events) throws InterruptedException {
        StompHeaders headers = new StompHeaders();
        headers.setReceipt("bye");
        session.disconnect(headers);
        check(!session.isConnected(), "the session is still connected");
        check(events.errors.isEmpty(), "an ERROR came");
        check(events.failures.isEmpty(), "the session failed: " + events.failures.peek());
        check(events.messages.isEmpty(), "an unexpected MESSAGE came");
    }

    /** Waits for the RECEIPT of {@code frame}. */
    static void await(StompSession.Receiptable frame, String command) throws InterruptedException {
        CountDownLatch receipt = new CountDownLatch(1);
        frame.addReceiptTask(receipt::countDown);
        check(receipt.await(Events.LIMIT_S, TimeUnit.SECONDS), "no RECEIPT of " + command);
    }

    static StompHeaders to(String destination) {
        StompHeaders headers = new StompHeaders();
        headers.setDestination(destination);
        return headers;
    }

    static String newTopic() {
        return "/topic/spring-" + UUID.randomUUID();
    }

    static String newQueue() {
        return "/queue/spring-" + UUID.randomUUID();
    }

    static void equal(String expected, String actual) {
        check(expected.equals(actual), "'" + actual + "' instead of '" + expected + "'");
    }

    static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }
}
