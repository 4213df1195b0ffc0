package org.stompica.interop;

import org.springframework.messaging.simp.stomp.StompSession;
import org.springframework.messaging.simp.stomp.StompSessionHandler;

/** Opens sessions over one transport. */
interface Connector {

    /** A connected session that asks for heart-beats every {@code beatMs} milliseconds each way; 0: none. */
    StompSession connect(long beatMs, StompSessionHandler handler) throws Exception;
}
