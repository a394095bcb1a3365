"""A code location: the user's code that a fork server loads, with its name in Dagster.

Import Dagster late here: workers only pass code locations on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration_queue.errors import UsageError

if TYPE_CHECKING:
    from orchestration_queue.dagster._compat import LoadableTargetOrigin

__all__ = ["CodeLocation"]


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """The module, file or package with definitions.

    Attributes:
        name: Its name in Dagster's workspace; default: the module, the package, or the file's name.
        module: A module's import name.
        file: A file's path.
        package: A package's import name.
        attribute: The name of the definitions in it; '' to find them.
        working_directory: An additional directory for imports.
        autoload: A module whose folder of definitions is loaded, as in ``dg`` projects.
    """

    name: str = ""
    module: str = ""
    file: str = ""
    package: str = ""
    attribute: str = ""
    working_directory: str = ""
    autoload: str = ""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str):
                raise UsageError(f"`{name}` of a code location must be a string, got {value!r}; pass its name.")
        given = [place for place in (self.module, self.file, self.package, self.autoload) if place]
        if len(given) != 1:
            raise UsageError(f"A code location must be one module, file or package, got {len(given)}; pass one.")
        if self.file and not Path(self.file).is_file():
            raise UsageError(f"File {self.file!r} with definitions does not exist; check the path.")
        if not self.name:
            object.__setattr__(self, "name", Path(self.file).name if self.file else given[0])

    @property
    def label(self) -> str:
        """What it is called in logs and errors."""
        return f"Code location {self.name!r}"

    @classmethod
    def of_workspace(cls, files: Sequence[str]) -> list[CodeLocation]:
        """Return the code locations of workspace files, except servers.

        Raises:
            UsageError: A file is not a valid workspace, or contains no Python code.
        """
        from orchestration_queue.dagster._compat import location_origins

        try:
            origins = location_origins(files)
        except Exception as error:
            raise UsageError(f"{', '.join(files)} cannot be read as a Dagster workspace ({error}).") from error
        if not origins:
            raise UsageError(
                f"{', '.join(files)} contains only servers, whose code can't be loaded here; pass a module with `-m`."
            )
        return [cls._of_origin(name, origin) for name, origin in origins.items()]

    @classmethod
    def of_project(cls, directory: str) -> list[CodeLocation]:
        """Return the code locations that a directory's pyproject.toml names, as ``dagster dev`` finds them.

        It reads ``[tool.dagster]``, and ``[tool.dg.project]`` of projects that ``dg`` has created. Empty without them.

        Raises:
            UsageError: The file cannot be read.
        """
        path = Path(directory, "pyproject.toml")
        if not path.is_file():
            return []
        from orchestration_queue.dagster._compat import project_origins

        try:
            origins = project_origins(str(path))
        except Exception as error:
            raise UsageError(f"{path} cannot be read as a Dagster project ({error}).") from error
        return [replace(cls._of_origin(name, origin), working_directory=directory) for name, origin in origins.items()]

    @classmethod
    def _of_origin(cls, name: str, origin: LoadableTargetOrigin) -> CodeLocation:
        return cls(
            name,
            origin.module_name or "",
            origin.python_file or "",
            origin.package_name or "",
            origin.attribute or "",
            origin.working_directory or "",
            origin.autoload_defs_module_name or "",
        )

    def settings(self) -> dict[str, str]:
        """Return the code location as JSON."""
        return asdict(self)

    def load(self) -> None:
        """Import the code in this process, and create all its definitions."""
        from orchestration_queue.dagster._compat import LoadableTargetOrigin, load_definitions

        origin = LoadableTargetOrigin(
            python_file=self.file or None,
            module_name=self.module or None,
            working_directory=self.working_directory or None,
            attribute=self.attribute or None,
            package_name=self.package or None,
            autoload_defs_module_name=self.autoload or None,
        )
        load_definitions(origin, self.name)
