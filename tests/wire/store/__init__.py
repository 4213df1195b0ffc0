"""Tests on raw sockets: `store=file`, with one broker after the other on a directory."""
