"""Base of the components: resolvers for lists, functions and partitions in YAML, scaffolders for ``dg``, and sensors.

Dagster accepts a template for every list, so its only error for a wrong one is "not valid under any of the given
schemas". Here the schema is that of the list alone, and each element is checked when it is resolved.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

from abc import abstractmethod
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

import dagster as dg
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from orchestration_queue.dagster.sensors.options import SensorOptions
from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError
from orchestration_queue.schedules.cron import known_zone

__all__ = [
    "TARGET",
    "EventSensorScaffolder",
    "Function",
    "QueueScaffolder",
    "ScaffoldParams",
    "SensorComponent",
    "element_of",
    "function",
    "list_of",
    "parse_target",
    "partitions_definition",
    "words",
]

R = TypeVar("R", bound=dg.Resolvable)


def list_of(kind: type[R], field: str) -> dg.Resolver:
    """Return a resolver for a field that is a list of elements.

    Args:
        kind: The type of the elements.
        field: The field's name, for errors.
    """
    model = kind.model()
    schema = {"type": "array", "minItems": 1, "items": model.model_json_schema()}

    def read(context: dg.ResolutionContext, value: Any) -> Sequence[R]:
        if not isinstance(value, list) or not value:
            raise InvalidOptionError(f"{field} must be a non-empty list, got {value!r}; write each element as '- ...'.")
        return [element_of(kind, context, item, f"{field}[{index}]") for index, item in enumerate(value)]

    return dg.Resolver(read, model_field_type=Any, json_schema_extra=schema)


def words(field: str, *, or_one: bool = False) -> dg.Resolver:
    """Return a resolver for a field that is a list of words.

    Args:
        field: The field's name, for errors.
        or_one: Whether to accept a single word, too.
    """
    many = {"type": "array", "minItems": int(or_one), "items": {"type": "string"}}
    schema = {"anyOf": [{"type": "string"}, many]} if or_one else many

    def read(context: dg.ResolutionContext, value: Any) -> str | Sequence[str]:
        found = context.resolve_value(value)
        if or_one and isinstance(found, str):
            return found
        if not isinstance(found, list):
            raise InvalidOptionError(f"{field} must be a list of words, got {found!r}; write each word as '- ...'.")
        for index, word in enumerate(found):
            if not isinstance(word, str):
                raise InvalidOptionError(f"{field}[{index}] must be a word, got {word!r}; quote or remove it.")
        return found

    return dg.Resolver(read, model_field_type=Any, json_schema_extra=schema, inject_before_resolve=False)


def function(field: str) -> dg.Resolver:
    """Return a resolver for a field that is a function, which comes from a template variable.

    Args:
        field: The field's name, for errors.
    """

    def read(context: dg.ResolutionContext, value: Any) -> Callable[..., Any]:
        found: object = context.resolve_value(value)
        if not callable(found):
            raise InvalidOptionError(
                f"{field} must be a function, got {found!r}; write '{{{{ name }}}}', and define a template variable of "
                "that name that returns the function."
            )
        return found

    return dg.Resolver(read, model_field_type=str, inject_before_resolve=False)


def element_of(kind: type[R], context: dg.ResolutionContext, value: Any, place: str) -> R:
    """Read one element.

    Raises:
        InvalidOptionError: The value is invalid; the message names the place and the mistake.
    """
    model = kind.model()
    if not isinstance(value, dict):
        fields = ", ".join(model.model_fields)
        raise InvalidOptionError(f"{place} must be a mapping, got {value!r}; use the keys {fields}.")
    name = next((value[key] for key in ("name", "asset") if isinstance(value.get(key), str)), None)
    shown = f"{place} ({name!r})" if name else place
    try:
        element: R = kind.resolve_from_model(context, model.model_validate(value))
    except ValidationError as error:
        raise InvalidOptionError(f"{shown}: {_first(error, model)}") from None
    except OrchestrationQueueError as error:
        raise InvalidOptionError(f"{shown}: {error}") from None
    return element


def _first(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first mistake as a sentence. Unknown keys come first: they may be the reason for missing ones."""
    mistakes = sorted(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    return _sentence(mistakes[0], model)


def _sentence(mistake: ErrorDetails, model: type[BaseModel]) -> str:
    key = str(mistake["loc"][0]) if mistake["loc"] else ""
    if mistake["type"] == "extra_forbidden":
        near = get_close_matches(key, model.model_fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(model.model_fields)}."
        return f"unknown key {key!r}; {hint}"
    if mistake["type"] == "missing":
        return f"{key!r} is missing; add it."
    if not key:
        return mistake["msg"].removeprefix("Value error, ")
    return f"invalid value {mistake['input']!r} of {key!r}: {mistake['msg'].removeprefix('Value error, ')}."


class ScaffoldParams(BaseModel):
    """Options of ``dg scaffold``."""

    queue: str = Field(default="default", description="The queue.")
    name: str | None = Field(default=None, description="The component's name; default the directory's.")


class QueueScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes an example's attributes with the given queue and name."""

    example: ClassVar[dict[str, Any]] = {}
    """The attributes, with the placeholders ``{queue}`` and ``{name}``."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        """Return the options of the command."""
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        """Write the file."""
        name = request.params.name or request.target_path.stem.replace("-", "_")
        dg.scaffold_component(request, _fill(self.example, {"queue": request.params.queue, "name": name}))


class EventSensorScaffolder(QueueScaffolder):
    """Writes an example of a sensor for a queue's events."""

    example: ClassVar[dict[str, Any]] = {
        "name": "{name}",
        "queue": "{queue}",
        "events": ["completed"],
        "target": "key:report",
    }


def _fill(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, names) for item in value]
    return value.format(**names) if isinstance(value, str) else value


_OF_TIME: dict[str, Any] = {
    "hourly": dg.HourlyPartitionsDefinition,
    "daily": dg.DailyPartitionsDefinition,
    "weekly": dg.WeeklyPartitionsDefinition,
    "monthly": dg.MonthlyPartitionsDefinition,
}


def partitions_definition(
    kind: str, start: str | None, end: str | None, tz: str | None, values: Sequence[str], name: str | None
) -> dg.PartitionsDefinition[str]:
    """Build partitions.

    Args:
        kind: ``hourly``, ``daily``, ``weekly``, ``monthly``, ``static`` or ``dynamic``.
        start: The start of the first partition of time.
        end: The end of the last partition of time; None for no end.
        tz: The time zone of partitions of time; None for UTC.
        values: The keys of static partitions.
        name: The name of dynamic partitions.

    Raises:
        InvalidOptionError: An argument is missing, or belongs to another kind.
    """
    needs = {"static": "values", "dynamic": "name"}.get(kind, "start")
    takes = {needs, "end", "tz"} if kind in _OF_TIME else {needs}
    given = {"start": start, "end": end, "tz": tz, "values": list(values), "name": name}
    if unknown := next((word for word, value in given.items() if value and word not in takes), None):
        raise InvalidOptionError(f"Unknown key {unknown!r} of {kind} partitions; use {', '.join(sorted(takes))}.")
    if not given[needs]:
        raise InvalidOptionError(f"{kind} partitions require {needs!r}; add it.")
    try:
        if kind == "static":
            return dg.StaticPartitionsDefinition(list(values))
        if kind == "dynamic":
            return dg.DynamicPartitionsDefinition(name=name)
        known_zone(tz or None)  # Dagster takes what a daemon's machine is set to
        made: dg.PartitionsDefinition[str] = _OF_TIME[kind](start_date=start, end_date=end, timezone=tz or "UTC")
    except Exception as error:  # Dagster's checks raise many kinds
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InvalidOptionError(f"{kind} partitions can't be created ({reason}); correct the definition.") from None
    return made


Function: TypeAlias = Callable[..., Any]
TARGET = "The assets of its runs: a selection such as 'key:report' or 'group:daily'."


class SensorComponent(dg.Component, dg.Model, dg.Resolvable):
    """A sensor. Pass functions as template variables."""

    name: str = Field(description="The sensor's name.")
    react: Annotated[Function | None, function("react")] = Field(
        default=None, description="'{{ name }}' of a function that handles an event; default requests a run."
    )
    running: bool = Field(default=False, description="Whether it runs without being switched on.")
    description: str | None = Field(default=None, description="Text for the UI.")
    resource_key: str

    def model_post_init(self, context: Any) -> None:
        """Check the values; constraints of the fields themselves would reject templates."""
        super().model_post_init(context)
        self._build()

    def _build(self) -> dg.SensorDefinition:
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
        """Build the sensor.

        Args:
            options: The options that all sensors have.
        """

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the sensor."""
        return dg.Definitions(sensors=[self._build()])


def parse_target(target: str) -> dg.AssetSelection:
    """Parse a target into a selection of assets.

    Raises:
        InvalidOptionError: The target is not a selection of assets.
    """
    try:
        return dg.AssetSelection.from_string(target)
    except dg.DagsterError as error:
        raise InvalidOptionError(
            f"`target` must be a selection of assets, got {target!r} ({error}); use 'key:report' or 'group:daily', say."
        ) from None
