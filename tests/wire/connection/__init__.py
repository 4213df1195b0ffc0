"""Tests on raw sockets: how connections begin, stay alive and end."""
