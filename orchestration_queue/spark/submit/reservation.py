"""What is written down before a cluster hears of a job, so that the next attempt finds its driver. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from orchestration_queue.spark.listener import with_listener
from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = ["MAIN_CLASS", "TAG_PROPERTY", "Reservation", "create_request"]

MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
"""What a driver of ours runs: in the cluster, what would run here in client mode."""

TAG_PROPERTY = "spark.orchestration_queue.submission"
"""The property by which a driver is known to be of one attempt: it is in its command, which its log begins with."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """An attempt's place in a cluster: kept in the job's progress.

    Attributes:
        rest_url: The submission server.
        web_url: The master's pages.
        tag: What the driver carries as :data:`TAG_PROPERTY`.
        since_ms: A time by the master's clock, before which the driver cannot have been submitted.
        driver: Its id; empty until the master has assigned it.
    """

    rest_url: str
    web_url: str
    tag: str
    since_ms: int
    driver: str = ""

    @classmethod
    def of(cls, progress: object) -> Reservation | None:
        """What an earlier attempt has left; None when there was none, or nothing came of it."""
        spark = progress.get("spark") if isinstance(progress, dict) else None
        kept = spark.get("submission") if isinstance(spark, dict) else None
        if not isinstance(kept, dict):
            return None
        texts = [kept.get(name) for name in ("rest_url", "web_url", "tag", "driver")]
        since_ms = kept.get("since_ms")
        if not all(isinstance(text, str) for text in texts) or not isinstance(since_ms, int):
            return None
        rest_url, web_url, tag, driver = map(str, texts)
        return cls(rest_url, web_url, tag, since_ms, driver)

    @property
    def about(self) -> dict[str, Any]:
        """What a job's progress keeps of it, under ``spark``."""
        return {"submission": asdict(self)}


def create_request(
    reservation: Reservation, options: SparkSubmit, path: str, words: Sequence[str], properties: dict[str, str]
) -> dict[str, Any]:
    """What the submission server is sent.

    Args:
        reservation: The attempt's place.
        options: How the application runs.
        path: The application, as the cluster's machines find it.
        words: Its words.
        properties: Spark's properties.
    """
    properties = _ship_py_files(properties)
    if options.listener_jar:
        properties = with_listener(properties, "stderr", options.listener_jar)
    resource = path.removeprefix("local:")
    python = {"PYSPARK_PYTHON": str(options.python)} if options.python else {}
    java = {"JAVA_HOME": str(options.java_home)} if options.java_home else {}
    kind = ["--class", options.main_class] if options.main_class else []
    user = ["--proxy-user", options.proxy_user] if options.proxy_user else []
    return {
        "action": "CreateSubmissionRequest",
        "clientSparkVersion": "4.0.0",
        "appResource": resource if ":/" in resource else f"file:{quote(resource)}",
        "mainClass": MAIN_CLASS,
        # Without a master in its words, it would run beside the cluster: in the driver alone.
        "appArgs": ["--master", options.master, "--deploy-mode", "client", *kind, *user, path, *words],
        "sparkProperties": {**properties, TAG_PROPERTY: reservation.tag},
        "environmentVariables": {**python, **java, **options.env},
    }


def _ship_py_files(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties with the Python files among the files that executors fetch.

    In the driver, PySpark imports from the names of ``spark.submit.pyFiles`` that it finds among the fetched files.
    ``spark-submit`` merges the two lists; a request to the submission server passes it by.
    """
    if not (py_files := properties.get("spark.submit.pyFiles")):
        return properties
    names = dict.fromkeys(",".join((properties.get("spark.files", ""), py_files)).split(","))
    return {**properties, "spark.files": ",".join(filter(None, names))}
