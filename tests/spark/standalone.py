"""A real standalone cluster of one machine, on loopback: a master with its submission server, and a worker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestration_queue.spark import SparkSubmit, java_home
from orchestration_queue.spark.environment import ARCHIVE_QUIETLY, class_archive, spark_home
from orchestration_queue.spark.progress import LISTENER_JAR
from orchestration_queue.spark.submit.standalone import Master, MasterUnreachableError
from tests.waiting import wait_until_sync

__all__ = ["QUICKLY", "Cluster", "standalone_cluster"]

_ARCHIVE = class_archive(java_home(), spark_home({}))
QUICKLY = " ".join(
    ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    + [f"-XX:SharedArchiveFile={_ARCHIVE}", ARCHIVE_QUIETLY] * _ARCHIVE.exists()
)
"""What short Javas are told, which end before the better compiler would have paid: daemons and executors, too."""


@dataclass(frozen=True)
class Cluster:
    """Where it answers."""

    options: SparkSubmit
    master: Master


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def standalone_cluster(directory: Path, mark: dict[str, str]) -> Iterator[Cluster]:
    """A cluster with four cores; all of its processes end with the block.

    Args:
        directory: For drivers' and executors' logs.
        mark: Variables by which its processes, drivers and executors are found.
    """
    port, rest, web, worker_web = _free_ports(4)
    properties = directory / "master.properties"
    properties.write_text(
        f"spark.master.rest.enabled true\nspark.master.rest.host 127.0.0.1\nspark.master.rest.port {rest}\n"
    )
    environment = os.environ | {
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICKLY,
        "SPARK_WORKER_DIR": str(directory / "work"),
        **mark,
    }
    command = [f"{spark_home({})}/bin/spark-class", "org.apache.spark.deploy"]
    host = ["--host", "127.0.0.1", "--webui-port"]
    url = f"spark://127.0.0.1:{port}"
    roles = {
        "master.Master": [*host, str(web), "--port", str(port), "--properties-file", str(properties)],
        "worker.Worker": [*host, str(worker_web), "--cores", "4", "--memory", "3g", url],
    }
    with (directory / "daemons.log").open("wb") as log:
        daemons = [
            subprocess.Popen(
                [command[0], f"{command[1]}.{role}", *words],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            for role, words in roles.items()
        ]
    options = SparkSubmit(
        master=url,
        deploy_mode="cluster",
        rest_url=f"http://127.0.0.1:{rest}",
        web_url=f"http://127.0.0.1:{web}",
        listener_jar=str(LISTENER_JAR),
        memory="512m",
        executor_memory="512m",
        python=Path(sys.executable),
        conf={
            "spark.cores.max": "1",
            "spark.driver.extraJavaOptions": QUICKLY,
            "spark.executor.extraJavaOptions": QUICKLY,
        },
    )
    master = Master(*options.master_urls)

    def is_ready() -> bool:
        try:
            return master.now_ms() > 0 and bool(master.workers())
        except MasterUnreachableError:
            return False

    try:
        wait_until_sync(is_ready, "the cluster to be there", 240)
        yield Cluster(options, master)
    finally:
        for daemon in reversed(daemons):
            os.killpg(daemon.pid, signal.SIGTERM)
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:  # a busy machine, and a worker that waits for its drivers
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait(30)
