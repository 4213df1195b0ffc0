"""C stompica's behaviour under `compat=stompica`, and the loads that it was tested with."""
