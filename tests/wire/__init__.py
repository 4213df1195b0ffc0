"""Functional STOMP tests, written as dialogues of literal frames over raw sockets."""
