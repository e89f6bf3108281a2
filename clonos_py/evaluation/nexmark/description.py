"""A description of an event stream: options of the Spark data source, and the file that is stored with events."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import msgspec

from clonos_py.evaluation.nexmark.model import Model
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.errors import SettingError, SourceError

FILE_NAME = "nexmark.json"
_FORMAT = 1
_FORMAT_KEY = "nexmark"
_STREAM = ("events", "event_rate", "seed", "partitions", "base_time_us")
_MODEL = tuple(field.name for field in fields(Model))


def described(source: NexmarkSource) -> dict[str, Any]:
    """All parameters that determine the events and their partitions."""
    return {**{name: getattr(source, name) for name in _STREAM}, **asdict(source.model)}


def source_of(description: Mapping[str, Any]) -> NexmarkSource:
    """The source of a description. Numbers may be text; omitted parameters have their defaults. Raises SettingError."""
    unknown = [name for name in description if name not in _STREAM + _MODEL]
    if unknown:
        raise SettingError(f"there is no option {unknown[0]!r}: choose from {', '.join(_STREAM + _MODEL)}")
    if "events" not in description:
        raise SettingError("the number of events is missing: give the option 'events'")
    try:
        model = msgspec.convert({k: v for k, v in description.items() if k in _MODEL}, Model, strict=False)
        stream = msgspec.convert({k: v for k, v in description.items() if k in _STREAM}, dict[str, int], strict=False)
    except msgspec.ValidationError as error:
        raise SettingError(f"an option of the events is wrong: {error}") from error
    return NexmarkSource(**stream, model=model)


def write_description(folder: Path, source: NexmarkSource) -> None:
    """Writes the description into a folder of events. It is written last, and so marks the events as complete."""
    text = msgspec.json.format(msgspec.json.encode({_FORMAT_KEY: _FORMAT, **described(source)}), indent=2)
    part = folder / f".{FILE_NAME}"
    part.write_bytes(text + b"\n")
    os.replace(part, folder / FILE_NAME)


def read_description(folder: Path) -> NexmarkSource:
    """The source whose events a folder holds. Raises SourceError if the folder has no valid description."""
    path = folder / FILE_NAME
    try:
        values = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise SourceError(
            f"{folder} holds no events ({FILE_NAME} cannot be read): write some with clonos nexmark generate "
            f"--events 1M --out {folder}"
        ) from error
    except msgspec.MsgspecError as error:
        raise SourceError(f"{path} cannot be read ({error}): write the events again") from error
    if values.pop(_FORMAT_KEY, None) != _FORMAT:
        raise SourceError(f"{path} is of another version of clonos: write the events again")
    return source_of(values)
