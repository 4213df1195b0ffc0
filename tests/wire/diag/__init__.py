"""Tests on raw sockets: diagnostics, the monitor and counters."""
