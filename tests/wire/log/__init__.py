"""Tests on raw sockets: log lines."""
