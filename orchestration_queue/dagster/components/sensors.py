"""What components that are a sensor share: their fields, and when a wrong one is refused."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.components.base import function
from orchestration_queue.dagster.sensors.options import SensorOptions
from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError

__all__ = ["TARGET", "Function", "SensorComponent", "selected"]

Function: TypeAlias = Callable[..., Any]
TARGET = "What its runs make: a selection of assets, such as 'key:report' or 'group:daily'."


class SensorComponent(dg.Component, dg.Model, dg.Resolvable):
    """A sensor. Options that are functions are the values of template variables."""

    name: str = Field(description="The sensor's name.")
    react: Annotated[Function | None, function("react")] = Field(
        default=None, description="'{{ name }}' of a function that says what to request; default a run of the target."
    )
    running: bool = Field(default=False, description="Whether it runs without being switched on.")
    description: str | None = Field(default=None, description="What the UI shows.")
    resource_key: str

    def model_post_init(self, context: Any) -> None:
        """Refuse at once what could never run; limits in the fields themselves would refuse templates."""
        super().model_post_init(context)
        self._checked()

    def _checked(self) -> dg.SensorDefinition:
        try:
            return self.sensor(self._options())
        except OrchestrationQueueError as error:
            raise InvalidOptionError(f"Sensor {self.name!r}: {error}") from None

    def _options(self) -> SensorOptions:
        options: SensorOptions = {
            "resource_key": self.resource_key,
            "default_status": dg.DefaultSensorStatus.RUNNING if self.running else dg.DefaultSensorStatus.STOPPED,
        }
        return options if self.description is None else {**options, "description": self.description}

    @abstractmethod
    def sensor(self, options: SensorOptions) -> dg.SensorDefinition:
        """Return the same as code would write it.

        Args:
            options: What all sensors have.
        """

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the sensor."""
        return dg.Definitions(sensors=[self._checked()])


def selected(target: str) -> dg.AssetSelection:
    """Return the assets that a target selects.

    Raises:
        InvalidOptionError: It cannot be read.
    """
    try:
        return dg.AssetSelection.from_string(target)
    except dg.DagsterError as error:
        raise InvalidOptionError(
            f"target is {target!r}, which selects no assets ({error}); write such as 'key:report' or 'group:daily'."
        ) from None
