"""A process that uses an embedded server, for tests to start and kill.

``python embedded_user.py URL write`` adds the next number to a list for each line of its input, and prints the number
once it is acknowledged, or ``?`` if the connection broke; ``... hold`` counts once, prints the count, and stays until
the end of its input; ``... once`` counts once and leaves.
"""

from __future__ import annotations

import sys

from orchestration_queue.errors import TransportError
from orchestration_queue.protocol.call import Call
from orchestration_queue.server import Connection


def main(url: str, what: str) -> None:
    with Connection.open(url, libraries=()) as connection:
        match what:
            case "write":
                for number, _ in enumerate(sys.stdin):
                    try:
                        connection.execute(Call("RPUSH", ("numbers",), (number,)))
                        sys.stdout.write(f"{number}\n")
                    except TransportError as error:
                        if not error.maybe_applied:
                            raise
                        sys.stdout.write("?\n")
                    sys.stdout.flush()
            case "hold":
                sys.stdout.write(f"{connection.execute(Call('INCR', ('counter',)))}\n")
                sys.stdout.flush()
                sys.stdin.read()
            case "once":
                sys.stdout.write(f"{connection.execute(Call('INCR', ('counter',)))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
