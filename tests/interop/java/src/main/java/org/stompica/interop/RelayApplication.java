package org.stompica.interop;

import java.net.URI;
import java.security.Principal;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import jakarta.servlet.ServletContext;

import org.apache.catalina.Context;
import org.apache.catalina.LifecycleException;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.websocket.server.WsSci;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.event.EventListener;
import org.springframework.core.env.Environment;
import org.springframework.http.server.ServerHttpRequest;
import org.springframework.messaging.handler.annotation.MessageMapping;
import org.springframework.messaging.simp.SimpMessagingTemplate;
import org.springframework.messaging.simp.annotation.SendToUser;
import org.springframework.messaging.simp.broker.BrokerAvailabilityEvent;
import org.springframework.messaging.simp.config.MessageBrokerRegistry;
import org.springframework.stereotype.Controller;
import org.springframework.web.context.support.AnnotationConfigWebApplicationContext;
import org.springframework.web.servlet.DispatcherServlet;
import org.springframework.web.socket.WebSocketHandler;
import org.springframework.web.socket.config.annotation.EnableWebSocketMessageBroker;
import org.springframework.web.socket.config.annotation.StompEndpointRegistry;
import org.springframework.web.socket.config.annotation.WebSocketMessageBrokerConfigurer;
import org.springframework.web.socket.server.support.DefaultHandshakeHandler;

/**
 * A Spring application as its documentation recommends: web clients speak STOMP over WebSocket to it, and its
 * StompBrokerRelay relays their frames to the broker, over one TCP connection for each client and one for the
 * application itself. It runs until the program ends.
 */
final class RelayApplication {

    private final Tomcat tomcat = new Tomcat();
    private final AnnotationConfigWebApplicationContext context = new AnnotationConfigWebApplicationContext();

    /** Starts the application; its relay is connected to the broker on {@code brokerPort} when this returns. */
    RelayApplication(int brokerPort) throws LifecycleException, InterruptedException {
        context.getEnvironment().getSystemProperties().put("broker.port", brokerPort);
        context.register(Configured.class, Questions.class, Relay.class);
        tomcat.setBaseDir(System.getProperty("java.io.tmpdir"));
        tomcat.setPort(0);
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        Context servlets = tomcat.addContext("", null);
        servlets.addServletContainerInitializer(new WsSci(), Set.of());
        servlets.addServletContainerInitializer(this::addServlet, Set.of());
        tomcat.start();
        if (!context.getBean(Relay.class).available.await(Events.LIMIT_S, TimeUnit.SECONDS)) {
            throw new AssertionError("the relay has not connected within " + Events.LIMIT_S + " s");
        }
    }

    private void addServlet(Set<Class<?>> none, ServletContext servlets) {
        context.setServletContext(servlets);
        context.refresh();
        var dispatcher = servlets.addServlet("dispatcher", new DispatcherServlet(context));
        dispatcher.setLoadOnStartup(1);
        dispatcher.setAsyncSupported(true);
        dispatcher.addMapping("/");
    }

    /** Returns the address at which web clients connect as {@code user}. */
    String url(String user) {
        return "ws://127.0.0.1:" + tomcat.getConnector().getLocalPort() + "/stomp?" + user;
    }

    /** Returns the template with which the application itself sends. */
    SimpMessagingTemplate template() {
        return context.getBean(SimpMessagingTemplate.class);
    }

    /** Records that the application's own connection to the broker is established. */
    static class Relay {

        final CountDownLatch available = new CountDownLatch(1);

        @EventListener
        void availabilityChanged(BrokerAvailabilityEvent event) {
            if (event.isBrokerAvailable()) {
                available.countDown();
            }
        }
    }

    /** Answers requests at the user destination of the client. */
    @Controller
    static class Questions {

        @MessageMapping("/ask")
        @SendToUser(destinations = "/queue/answers", broadcast = false)
        String ask(String question) {
            return "answer to " + question;
        }
    }

    /** The configuration that Spring's documentation shows for an external broker. */
    @Configuration
    @EnableWebSocketMessageBroker
    static class Configured implements WebSocketMessageBrokerConfigurer {

        private final Environment environment;

        Configured(Environment environment) {
            this.environment = environment;
        }

        @Override
        public void configureMessageBroker(MessageBrokerRegistry registry) {
            registry.setApplicationDestinationPrefixes("/app");
            registry.enableStompBrokerRelay("/topic", "/queue")
                    .setRelayHost("127.0.0.1")
                    .setRelayPort(environment.getRequiredProperty("broker.port", Integer.class))
                    .setClientLogin("guest")
                    .setClientPasscode("guest")
                    .setSystemLogin("guest")
                    .setSystemPasscode("guest")
                    .setUserDestinationBroadcast("/topic/spring-unresolved-user")
                    .setUserRegistryBroadcast("/topic/spring-user-registry");
        }

        @Override
        public void registerStompEndpoints(StompEndpointRegistry registry) {
            registry.addEndpoint("/stomp").setHandshakeHandler(new ByQuery());
        }

        /** The query of the address names the user. */
        @Bean
        ByQuery byQuery() {
            return new ByQuery();
        }
    }

    /** Takes the user's name from the address. */
    static class ByQuery extends DefaultHandshakeHandler {

        @Override
        protected Principal determineUser(
                ServerHttpRequest request, WebSocketHandler handler, Map<String, Object> attributes) {
            URI address = request.getURI();
            return address::getQuery;
        }
    }
}
