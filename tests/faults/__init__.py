"""What goes wrong outside: slow readers, floods, lost peers, exhausted descriptors, signals."""
