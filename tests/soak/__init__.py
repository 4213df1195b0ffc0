"""Long runs, behind `make soak`."""
