"""What the tests of Airflow may use. `make airflow` runs them; without Airflow, this folder is not collected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.airflow.deployment import Airflow

collect_ignore_glob = ["dags/*"] if find_spec("airflow") else ["*"]

# Airflow reads its configuration where it is first imported, and writes a file there.
_HOME = TemporaryDirectory(prefix="oq-airflow-")
os.environ["AIRFLOW_HOME"] = _HOME.name
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


@pytest.fixture(scope="session")
def airflow(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """A whole Airflow without workers, as long as the test session lives, with PostgreSQL where that is installed."""
    from tests.airflow.deployment import Airflow
    from tests.dagster.stores import postgres

    with postgres() as database:
        home = tmp_path_factory.mktemp("airflow")
        with Airflow(home, server_url, database.url if database else "").running() as deployment:
            yield deployment
