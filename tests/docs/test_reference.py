"""The reference pages, which the site's build makes from the code."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from tests.integration.test_cli import commands

sys.path.append(str(Path(__file__).parents[2] / "tools"))
reference_cli = import_module("reference_cli")


def test_every_option_of_the_reference_exists_and_the_other_way_round() -> None:
    reference = reference_cli.cli()
    for command in commands():
        help_text = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).stdout
        _, _, after = re.sub(rf"^## `oq {' '.join(command)}[ `]", "HERE", reference, flags=re.MULTILINE).partition(
            "HERE"
        )
        section = after.partition("\n## ")[0]
        offered = {word for word in help_text.split() if word.startswith("--") and word != "--help"}
        common = {"--url", "--prefix", "--json", "--yes"}
        assert section, command
        assert offered - common == set(re.findall(r"`(--[a-z-]+)`", section)) - common, command
