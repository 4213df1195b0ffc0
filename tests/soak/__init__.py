"""Long runs, for `make soak`."""
