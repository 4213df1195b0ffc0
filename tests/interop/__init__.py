"""Clients of other projects, run against the broker in the way their users run them."""
