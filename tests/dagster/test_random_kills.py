"""Runs whose processes, workers and server are killed at random points; the campaign also kills the daemon."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.dagster_kills import BAD, campaign, rig

pytestmark = [pytest.mark.dagster, pytest.mark.chaos, pytest.mark.timeout(600)]


def test_runs_end_as_they_would_have_without_kills(tmp_path: Path) -> None:
    with rig(tmp_path, daemon=False) as made:
        for retries, kinds in ((0, ("run", "server", "run worker")), (2, ("run", "step worker"))):
            counted, wrong = campaign(
                made,
                random.Random(7),
                runs=2,
                retries=retries,
                kinds=kinds,
                most_faults=3,
                together=2,
                meanwhile=made.monitor,
            )
            assert not wrong, {name: counted[name] for name in BAD}
            assert counted["SUCCESS"] == 2
        assert made.faults.total() == 6
