"""What tests share: the broker as a process, raw clients, builders of frames, and helpers for dialogues."""
