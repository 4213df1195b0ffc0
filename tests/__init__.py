"""Tests of the broker from outside: the real process, real sockets."""
