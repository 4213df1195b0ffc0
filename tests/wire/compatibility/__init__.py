"""Tests on raw sockets: what other brokers' clients send."""
