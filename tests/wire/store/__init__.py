"""Tests on raw sockets: stores on disk, with one broker after the other on a directory."""
