"""The front: settings, command line, signals, logs, and the broker inside a Python process."""
