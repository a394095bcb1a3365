"""Components' files, loaded as Dagster loads them."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from dagster.components.testing.utils import DefsFolderSandbox

WARNINGS = [
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),  # by which Dagster reads YAML
    pytest.mark.filterwarnings("ignore:Parameter `owners` of initializer `SensorDef"),  # which its loading gives
    pytest.mark.filterwarnings("ignore:Class `.*CodeReference.*` is currently in beta"),  # its own, too
]


def written(kind: type[dg.Component], **attributes: Any) -> dict[str, Any]:
    """Return a component's file, as YAML has it."""
    return {"type": f"{kind.__module__}.{kind.__name__}", "attributes": attributes}


def definitions(
    sandbox: DefsFolderSandbox, kind: type[dg.Component], functions: str = "", /, **attributes: Any
) -> dg.Definitions:
    """Return what a component's file makes, which may name functions of a module beside it."""
    contents = written(kind, **attributes) | ({"template_vars_module": ".functions"} if functions else {})
    path = sandbox.scaffold_component(kind, defs_yaml_contents=contents)
    if functions:
        (path / "functions.py").write_text(functions)
    with sandbox.load_component_and_build_defs(path) as (_, made):
        return made


def whole_story(error: BaseException | None) -> str:
    """Return an exception's message, and those of all that caused it."""
    return f"{error}\n{whole_story(error.__cause__ or error.__context__)}" if error else ""
