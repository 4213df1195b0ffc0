"""Tests on raw sockets: frames, headers and bodies."""
