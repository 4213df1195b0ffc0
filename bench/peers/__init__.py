"""The load generator for Redis, NATS and MQTT: used by `stompica bench` in a source tree, not part of the product."""
