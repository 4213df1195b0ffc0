"""Tests on raw sockets: subscriptions of every kind."""
