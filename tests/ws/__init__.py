"""RFC 6455 and STOMP over it, against the real broker."""
