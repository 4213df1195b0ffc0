package org.stompica.interop;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.stompica.interop.Scenarios.await;
import static org.stompica.interop.Scenarios.check;
import static org.stompica.interop.Scenarios.equal;
import static org.stompica.interop.Scenarios.newQueue;
import static org.stompica.interop.Scenarios.newTopic;
import static org.stompica.interop.Scenarios.subscribe;
import static org.stompica.interop.Scenarios.to;

import java.util.List;
import java.util.Set;
import java.util.TreeSet;

import org.springframework.messaging.simp.stomp.StompHeaders;
import org.springframework.messaging.simp.stomp.StompSession;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/** Scenarios of web clients and the application with the broker behind Spring's relay. */
final class RelayScenarios {

    private final RelayApplication application;
    private final ThreadPoolTaskScheduler scheduler;

    RelayScenarios(RelayApplication application, ThreadPoolTaskScheduler scheduler) {
        this.application = application;
        this.scheduler = scheduler;
    }

    /** A web client's connection to the application. */
    private record Client(StompSession session, Events events) {

        Events.Frame next(String body) throws InterruptedException {
            Events.Frame message = Events.next(events.messages, "MESSAGE");
            equal(body, new String(message.body(), UTF_8));
            return message;
        }

        void send(String destination, String body) throws InterruptedException {
            StompHeaders headers = to(destination);
            headers.set("content-type", "text/plain;charset=UTF-8");
            await(session.send(headers, body.getBytes(UTF_8)), "SEND");
        }
    }

    /** Sends a message that the application handles itself: it gets no RECEIPT. */
    private static void tell(Client client, String destination, String body) {
        client.session.setAutoReceipt(false);
        client.session.send(to(destination), body.getBytes(UTF_8));
        client.session.setAutoReceipt(true);
    }

    private Client connect(String user) throws Exception {
        Events events = new Events();
        StompSession session = SpringClients.overWebSocket(application.url(user), scheduler).connect(0, events);
        session.setAutoReceipt(true);
        return new Client(session, events);
    }

    /** Returns two web clients that are subscribed to the destination. */
    private List<Client> connectTwo(String destination) throws Exception {
        List<Client> clients = List.of(connect("one"), connect("other"));
        for (Client client : clients) {
            await(subscribe(client.session, destination, "auto", client.events), "SUBSCRIBE");
        }
        return clients;
    }

    /** Every web client receives the messages of a topic, from another client and from the application. */
    void topic() throws Exception {
        String topic = newTopic();
        List<Client> clients = connectTwo(topic);
        clients.get(0).send(topic, "from a client");
        // Spring's outbound threads do not keep the order of two messages to one client.
        for (Client client : clients) {
            client.next("from a client");
        }
        application.template().convertAndSend(topic, "from the application");
        for (Client client : clients) {
            client.next("from the application");
            leave(client);
        }
    }

    /** A queue delivers each message to one consumer, and again if it is not acknowledged. */
    void queue() throws Exception {
        String queue = newQueue();
        application.template().convertAndSend(queue, "first");
        Client one = connect("one");
        await(subscribe(one.session, queue, "client-individual", one.events), "SUBSCRIBE");
        Events.Frame refused = one.next("first");
        await(one.session.acknowledge(refused.headers().getAck(), false), "NACK");
        Events.Frame again = one.next("first");
        equal("true", again.headers().getFirst("redelivered"));
        leave(one);
        Client other = connect("other");
        await(subscribe(other.session, queue, "client-individual", other.events), "SUBSCRIBE");
        Events.Frame left = other.next("first");
        await(other.session.acknowledge(left.headers().getAck(), true), "ACK");
        leave(other);
    }

    /** Two consumers share a queue. */
    void shared() throws Exception {
        String queue = newQueue();
        List<Client> clients = connectTwo(queue);
        Set<String> bodies = new TreeSet<>();
        for (int number = 0; number < 10; number++) {
            clients.get(0).send(queue, "job " + number);
        }
        for (Client client : clients) {
            for (int number = 0; number < 5; number++) {
                bodies.add(new String(Events.next(client.events.messages, "MESSAGE").body(), UTF_8));
            }
            leave(client);
        }
        check(bodies.size() == 10, "not every message once: " + bodies);
    }

    /** User destinations: each session has its own queue for /user/queue/…, and no user receives messages of another. */
    void user() throws Exception {
        Client laptop = connect("alice");
        Client phone = connect("alice");
        Client stranger = connect("bob");
        for (Client client : List.of(laptop, phone, stranger)) {
            await(subscribe(client.session, "/user/queue/answers", "auto", client.events), "SUBSCRIBE");
        }
        application.template().convertAndSendToUser("alice", "/queue/answers", "for all of alice");
        for (Client client : List.of(laptop, phone)) {
            Events.Frame message = client.next("for all of alice");
            equal("/user/queue/answers", message.headers().getDestination());
        }
        tell(phone, "/app/ask", "a question");
        phone.next("answer to a question");
        tell(laptop, "/user/bob/queue/answers", "from alice");
        stranger.next("from alice");
        for (Client client : List.of(laptop, phone, stranger)) {
            leave(client);
        }
    }

    /**
     * Ends a session that has received no ERROR. What comes after its DISCONNECT is sent by the relay: it may report that
     * the broker closed the connection, as DISCONNECT demands, before it has read the RECEIPT.
     */
    private static void leave(Client client) {
        check(client.events.errors.isEmpty(), "an ERROR came");
        check(client.events.failures.isEmpty(), "the session failed: " + client.events.failures.peek());
        check(client.events.messages.isEmpty(), "an unexpected MESSAGE came");
        client.session.disconnect();
    }
}
