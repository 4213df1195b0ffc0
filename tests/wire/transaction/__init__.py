"""Tests on raw sockets: transactions."""
