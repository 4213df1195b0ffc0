"""Work queues against a reference model: random interleavings, every delivery judged."""
