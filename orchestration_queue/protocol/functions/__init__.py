"""The server's functions as typed calls. Generated."""

from typing import Final

__all__ = ["REVISIONS"]

REVISIONS: Final = {
    "chasquimq": 5,
    "glidemq": 13,
    "orchestration_queue_1": 40,
    "qless": 10,
}
"""Each library's number, which grows with every change of its text."""
