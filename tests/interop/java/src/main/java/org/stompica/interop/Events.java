package org.stompica.interop;

import java.lang.reflect.Type;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.springframework.messaging.simp.stomp.StompCommand;
import org.springframework.messaging.simp.stomp.StompFrameHandler;
import org.springframework.messaging.simp.stomp.StompHeaders;
import org.springframework.messaging.simp.stomp.StompSession;
import org.springframework.messaging.simp.stomp.StompSessionHandlerAdapter;

/** Keeps the events of a session until they are read. */
final class Events extends StompSessionHandlerAdapter {

    /** Seconds until an awaited event counts as missing. */
    static final long LIMIT_S = 30;

    /** A frame that was received. */
    record Frame(StompHeaders headers, byte[] body) {
    }

    /** Adds the frames that it is given to a queue. */
    private record Collector(BlockingQueue<Frame> frames) implements StompFrameHandler {
        @Override
        public Type getPayloadType(StompHeaders headers) {
            return byte[].class;
        }

        @Override
        public void handleFrame(StompHeaders headers, Object payload) {
            frames.add(new Frame(headers, (byte[]) payload));
        }
    }

    final BlockingQueue<Frame> messages = new LinkedBlockingQueue<>();
    final BlockingQueue<Frame> errors = new LinkedBlockingQueue<>();
    final BlockingQueue<Throwable> failures = new LinkedBlockingQueue<>();

    /** The handler for the messages of subscriptions. */
    final StompFrameHandler toMessages = new Collector(messages);

    private final StompFrameHandler toErrors = new Collector(errors);

    @Override
    public Type getPayloadType(StompHeaders headers) {
        return toErrors.getPayloadType(headers);
    }

    @Override
    public void handleFrame(StompHeaders headers, Object payload) {
        toErrors.handleFrame(headers, payload);
    }

    @Override
    public void handleException(
            StompSession session, StompCommand command, StompHeaders headers, byte[] payload, Throwable exception) {
        failures.add(exception);
    }

    @Override
    public void handleTransportError(StompSession session, Throwable exception) {
        failures.add(exception);
    }

    /** Returns the next element of {@code queue}, waiting for it if necessary. */
    static <T> T next(BlockingQueue<T> queue, String what) throws InterruptedException {
        T item = queue.poll(LIMIT_S, TimeUnit.SECONDS);
        if (item == null) {
            throw new AssertionError("no " + what + " within " + LIMIT_S + " s");
        }
        return item;
    }
}
