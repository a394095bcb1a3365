"""What a keeper, which speaks no gRPC, has done for it: end the session of a dead worker, or warm a server up."""

from __future__ import annotations

import json
import sys
import uuid

from orchestration_queue.spark.connect.control import fence
from orchestration_queue.spark.connect.session import SparkConnection

__all__ = ["main"]


def main(url: str, session: str | None = None) -> None:
    """End a session, or without one run a first query: it loads most of Spark, and takes seconds."""
    if session is not None:
        fence(url, session)
        return
    with SparkConnection(url, str(uuid.uuid4()), "warm-up") as connection:
        spark = connection.session
        spark.range(100).selectExpr("id % 7 as key").groupBy("key").count().collect()


if __name__ == "__main__":
    main(**json.load(sys.stdin))
