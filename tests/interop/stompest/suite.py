"""stompest's own integration tests against a broker: `python suite.py PORT TEST…`.

Prints `PASS name` for each test and exits with 0; at the first failure it prints the reason on stderr and exits with 1.
It runs in an environment of its own, on a Python older than this project's.
"""

import functools
import importlib
import sys
import unittest
from typing import Any

PORT_OF_THE_SUITE = "61613"


def main(port: str, names: "list[str]") -> int:
    defaults: Any = importlib.import_module("stompest.tests")
    defaults.PORT = int(port)
    suite: Any = importlib.import_module("stompest.tests.sync_client_integration_test")
    config = suite.StompConfig

    @functools.wraps(config)
    def config_with_port(uri: str, **options: object) -> object:
        return config(uri.replace(PORT_OF_THE_SUITE, port), **options)

    suite.StompConfig = config_with_port
    plain = suite.Stomp

    class Leaving(plain):  # type: ignore[misc,valid-type]
        """Waits until the broker has ended its subscriptions."""

        def disconnect(self, receipt: "str | None" = None) -> None:
            super().disconnect(receipt="left")
            self.receiveFrame()

    class Suite(suite.SimpleStompIntegrationTest):  # type: ignore[misc]
        def setUp(self) -> None:
            # It consumes what is left in the queue. Without a RECEIPT it might get the first message of the test, too.
            suite.Stomp = Leaving
            super().setUp()
            suite.Stomp = plain

    for name in names:
        if not unittest.TextTestRunner().run(Suite(name)).wasSuccessful():
            return 1
        print("PASS", name, flush=True)
    return 0


sys.exit(main(sys.argv[1], sys.argv[2:]))
