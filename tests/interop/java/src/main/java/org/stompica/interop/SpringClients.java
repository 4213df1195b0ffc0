package org.stompica.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import jakarta.websocket.ContainerProvider;
import jakarta.websocket.WebSocketContainer;

import org.springframework.messaging.converter.SimpleMessageConverter;
import org.springframework.messaging.simp.stomp.ReactorNettyTcpStompClient;
import org.springframework.messaging.simp.stomp.StompClientSupport;
import org.springframework.messaging.simp.stomp.StompHeaders;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.web.socket.WebSocketHttpHeaders;
import org.springframework.web.socket.client.standard.StandardWebSocketClient;
import org.springframework.web.socket.messaging.WebSocketStompClient;

/**
 * Spring's STOMP clients against a broker: {@code java … SpringClients PORT TRANSPORT SCENARIO…}, where the transport is
 * {@code tcp} or {@code websocket}. Prints {@code PASS name} for each scenario; at the first failure prints the reason
 * and exits with 1.
 */
public final class SpringClients {

    private interface Scenario {
        void run(Connector connector) throws Exception;
    }

    /** The most bytes that the client takes in one WebSocket message; its default of 8 KiB is less than a frame may have. */
    private static final int MESSAGE_BYTES_MAX = 1 << 20;

    private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("exchange", Scenarios::exchange);
        SCENARIOS.put("escapes", Scenarios::escapes);
        SCENARIOS.put("heartbeats", Scenarios::heartbeats);
        SCENARIOS.put("binary", Scenarios::binary);
        SCENARIOS.put("acks", Scenarios::acks);
        SCENARIOS.put("errors", Scenarios::errors);
    }

    private SpringClients() {
    }

    public static void main(String[] args) {
        int port = Integer.parseInt(args[0]);
        ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();
        scheduler.initialize();
        Connector connector = switch (args[1]) {
            case "tcp" -> overTcp(port, scheduler);
            case "websocket" -> overWebSocket(port, scheduler);
            default -> throw new IllegalArgumentException("no transport " + args[1]);
        };
        for (int index = 2; index < args.length; index++) {
            try {
                SCENARIOS.get(args[index]).run(connector);
            } catch (Throwable failure) {
                System.err.println("FAIL " + args[index]);
                failure.printStackTrace();
                System.exit(1);
            }
            System.out.println("PASS " + args[index]);
        }
        System.exit(0);
    }

    private static Connector overTcp(int port, ThreadPoolTaskScheduler scheduler) {
        ReactorNettyTcpStompClient client = new ReactorNettyTcpStompClient("127.0.0.1", port);
        prepare(client, scheduler);
        return (beatMs, handler) -> {
            client.setDefaultHeartbeat(new long[] {beatMs, beatMs});
            return client.connectAsync(connectHeaders(), handler).get(Events.LIMIT_S, TimeUnit.SECONDS);
        };
    }

    private static Connector overWebSocket(int port, ThreadPoolTaskScheduler scheduler) {
        return overWebSocket("ws://127.0.0.1:" + port + "/ws", scheduler);
    }

    /** Returns a connector for sessions over WebSocket to {@code url}. */
    static Connector overWebSocket(String url, ThreadPoolTaskScheduler scheduler) {
        WebSocketContainer container = ContainerProvider.getWebSocketContainer();
        container.setDefaultMaxTextMessageBufferSize(MESSAGE_BYTES_MAX);
        container.setDefaultMaxBinaryMessageBufferSize(MESSAGE_BYTES_MAX);
        WebSocketStompClient client = new WebSocketStompClient(new StandardWebSocketClient(container));
        prepare(client, scheduler);
        client.setInboundMessageSizeLimit(MESSAGE_BYTES_MAX);
        WebSocketHttpHeaders handshake = new WebSocketHttpHeaders();
        handshake.setSecWebSocketProtocol("v12.stomp");
        return (beatMs, handler) -> {
            client.setDefaultHeartbeat(new long[] {beatMs, beatMs});
            return client.connectAsync(url, handshake, connectHeaders(), handler)
                    .get(Events.LIMIT_S, TimeUnit.SECONDS);
        };
    }

    private static void prepare(StompClientSupport client, ThreadPoolTaskScheduler scheduler) {
        client.setMessageConverter(new SimpleMessageConverter());
        client.setTaskScheduler(scheduler);
        client.setReceiptTimeLimit(TimeUnit.SECONDS.toMillis(Events.LIMIT_S));
    }

    private static StompHeaders connectHeaders() {
        StompHeaders headers = new StompHeaders();
        headers.setHost("localhost");
        headers.setLogin("guest");
        headers.setPasscode("guest");
        return headers;
    }
}
