"""Tests on raw sockets: queues."""
