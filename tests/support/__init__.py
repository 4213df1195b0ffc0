"""Shared helpers of the tests: the broker as a process, raw clients, builders of frames, and dialogues."""
