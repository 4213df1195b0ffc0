"""Tests on raw sockets: temporary destinations and reply-to."""
