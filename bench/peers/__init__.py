"""The load generator for Redis, NATS and MQTT, for `stompica bench` in a source tree; no part of the product."""
