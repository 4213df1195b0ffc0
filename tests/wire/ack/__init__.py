"""Tests on raw sockets: acknowledgement, redelivery and dead letters."""
