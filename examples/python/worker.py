"""Works through a queue: takes a job, does it, acknowledges it; a job that fails is negatively acknowledged.

Start as many workers as you like; each job goes to one of them. A killed worker loses no job: those that it had not
acknowledged go to another one.

python worker.py --port 61613 --destination /queue/jobs --count 10
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from arrivals import Arrivals, arguments, connect, disconnect, until_interrupted


def do(job: Any, options: argparse.Namespace) -> None:
    """The work itself: here it takes time and prints the job, or fails if the job is delivered for the first time."""
    print(f"took: {job.body}", flush=True)
    time.sleep(options.seconds)
    if options.fail_first and job.headers.get("redelivered") != "true":
        raise RuntimeError("pretended")
    print(f"done: {job.body} (delivery {job.headers.get('delivery-count', '1')})", flush=True)


def work(connection: Any, arrivals: Arrivals, options: argparse.Namespace) -> None:
    """Does jobs until `--count` of them are done."""
    done = 0
    while done != options.count:
        job = arrivals.message()
        try:
            do(job, options)
        except Exception as failure:
            print(f"failed: {job.body}: {failure}", flush=True)
            # The job is delivered again a little later, here or elsewhere; after too many failures it goes to
            # /queue/dlq/….
            connection.nack(job.headers["ack"])
        else:
            connection.ack(job.headers["ack"])
            done += 1


def main() -> None:
    parser = arguments(__doc__, "/queue/jobs")
    parser.add_argument("--count", type=int, help="ends after this many jobs (default: never)")
    parser.add_argument("--prefetch", type=int, default=10, help="jobs that may wait here while one is done")
    parser.add_argument("--seconds", type=float, default=0.0, help="simulated duration of each job")
    parser.add_argument(
        "--fail-first", action="store_true", help="simulates a failure at the first delivery of each job"
    )
    options = parser.parse_args()

    connection, arrivals = connect(options)
    headers = {"prefetch-count": str(options.prefetch), "receipt": "ready"}
    connection.subscribe(options.destination, id="1", ack="client-individual", headers=headers)
    with until_interrupted(arrivals, "ready"):
        work(connection, arrivals, options)
    disconnect(connection, arrivals)


if __name__ == "__main__":
    main()
