"""The JSON schema of a configuration file, for editors and other programs."""

from __future__ import annotations

import typing
from typing import Any

from ringlet.config.forms import bare
from ringlet.config.options import SECTIONS
from ringlet.config.run_config import RunConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """One property for every option, by section, with type, range, default and meaning.

    It describes what a TOML file may say: TOML has no null, a list may also be a text with commas, and an image size
    may be one number.
    """
    found = RunConfig.model_json_schema()["properties"]
    properties = {}
    for section in SECTIONS:
        title = (section.__doc__ or "").strip()
        for name, field in section.model_fields.items():
            properties[name] = _property(name, field, found[name]) | {"$comment": title}
    about = {"$schema": DIALECT, "title": "Configuration of a run of Ringlet", "type": "object"}
    return {**about, "properties": properties, "additionalProperties": False}


def _property(name: str, field: Any, found: dict[str, Any]) -> dict[str, Any]:
    kinds = found.get("anyOf", [{key: value for key, value in found.items() if key not in _ABOUT}])
    kinds = [kind for kind in kinds if kind.get("type") != "null"]
    if typing.get_origin(bare(field.annotation)) is tuple:
        kinds.append({"type": "string"})
    if name == "image_size":
        kinds.append({"type": "integer", "minimum": 1})
    about = {key: found[key] for key in ("description", "default") if found.get(key) is not None}
    return about | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})


_ABOUT = ("description", "default", "title")
