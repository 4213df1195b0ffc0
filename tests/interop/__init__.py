"""Clients that other people wrote, run against the broker as their users run them."""
