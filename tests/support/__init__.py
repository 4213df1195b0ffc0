"""What the tests share: the broker as a process, raw clients, frame builders."""
