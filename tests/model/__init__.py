"""Random interleavings on work queues: a reference model checks every delivery."""
