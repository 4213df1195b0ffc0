"""Tests on raw sockets: limits and what happens beyond them."""
