"""What the operators' own kinds may hold, as far as the chart uses them: no field beside these, each of its type."""

from __future__ import annotations

from typing import Any

__all__ = ["SCHEMAS"]

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "minimum": 0}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_DURATION = {"type": "string", "pattern": r"^(\d+(ms|[smhdwy]))+$"}


def _closed(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | optional,
        "required": list(required),
        "additionalProperties": False,
    }


def _kind(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return _closed(
        {
            "apiVersion": {"const": api_version},
            "kind": {"const": kind},
            "metadata": _closed({"name": _TEXT, "labels": _TEXTS}),
            "spec": spec,
        }
    )


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


_TRIGGER = _closed(
    {
        "type": {"const": "prometheus"},
        "metadata": _closed(
            {"serverAddress": _TEXT, "query": _TEXT, "threshold": {"type": "string", "pattern": r"^\d"}}
        ),
    }
)
_RULE = _closed({"alert": _TEXT, "expr": _TEXT, "labels": _TEXTS, "annotations": _TEXTS}, **{"for": _DURATION})

SCHEMAS = {
    "ScaledObject": _kind(
        "keda.sh/v1alpha1",
        "ScaledObject",
        _closed(
            {"scaleTargetRef": _closed({"name": _TEXT}), "triggers": _list(_TRIGGER)},
            minReplicaCount=_NUMBER,
            maxReplicaCount=_NUMBER,
        ),
    ),
    "ServiceMonitor": _kind(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        _closed(
            {
                "selector": _closed({"matchLabels": _TEXTS}),
                "endpoints": _list(_closed({"port": _TEXT, "interval": _DURATION})),
            }
        ),
    ),
    "PrometheusRule": _kind(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        _closed({"groups": _list(_closed({"name": _TEXT, "rules": _list(_RULE)}))}),
    ),
}
"""By kind."""
