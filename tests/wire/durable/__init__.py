"""Tests on raw sockets: durable subscriptions."""
