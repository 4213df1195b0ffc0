"""Tests on raw sockets: time to live and what else ends by itself."""
