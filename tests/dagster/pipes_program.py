"""An external program that reports through Pipes: it reads of the package nothing but its writer's file."""

import importlib.util
import os
import sys
from pathlib import Path

from dagster_pipes import open_dagster_pipes

FILE = Path(__file__).parents[2] / "orchestration_queue" / "dagster" / "pipes" / "writer.py"
specification = importlib.util.spec_from_file_location("copied_writer", FILE)
assert specification is not None
assert specification.loader is not None
writer = importlib.util.module_from_spec(specification)
sys.modules["copied_writer"] = writer
specification.loader.exec_module(writer)

with open_dagster_pipes(
    context_loader=writer.PipesStreamContextLoader(), message_writer=writer.PipesStreamMessageWriter()
) as pipes:
    pipes.log.info("from outside")
    pipes.report_asset_materialization(metadata={"has_package": "orchestration_queue" in sys.modules})
    if "OQ_DIE" in os.environ:
        os.abort()
