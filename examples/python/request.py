"""Sends requests to a service and prints the answers, which come through a temporary queue of this connection.

python request.py --port 61613 --destination /queue/upper-case hello world
"""

from __future__ import annotations

from arrivals import arguments, connect, disconnect

ANSWERS = "/temp-queue/answers"
"""Our name of the temporary queue. The service sees another one, which nobody can guess; only we can read from it."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--destination", default="/queue/upper-case")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds to wait for each answer")
    parser.add_argument("questions", nargs="+")
    options = parser.parse_args()

    connection, arrivals = connect(options)
    connection.subscribe(ANSWERS, id="answers", ack="auto")
    for number, question in enumerate(options.questions):
        headers = {"reply-to": ANSWERS, "correlation-id": str(number)}
        connection.send(options.destination, question, content_type="text/plain", headers=headers)

    answers = {}
    while len(answers) < len(options.questions):
        answer = arrivals.message(options.timeout)
        answers[int(answer.headers["correlation-id"])] = answer.body
    for number, question in enumerate(options.questions):
        print(f"{question}: {answers[number]}")
    disconnect(connection, arrivals)


if __name__ == "__main__":
    main()
