"""Tests on raw sockets: STOMP over WebSocket."""
