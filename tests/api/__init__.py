"""The Python package: settings, command line, signals, logs, and the broker inside a Python process."""
