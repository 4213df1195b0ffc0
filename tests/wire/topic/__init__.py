"""Tests on raw sockets: topics."""
