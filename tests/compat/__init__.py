"""The ancestor's ways under `compat=stompica`, and the loads it was tested with."""
