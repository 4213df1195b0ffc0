package org.stompica.interop;

import org.springframework.messaging.simp.stomp.StompSession;
import org.springframework.messaging.simp.stomp.StompSessionHandler;

/** Opens sessions over one transport. */
interface Connector {

    /** Returns a connected session that requests heart-beats every {@code beatMs} milliseconds both ways; 0: none. */
    StompSession connect(long beatMs, StompSessionHandler handler) throws Exception;
}
