"""Settings as command-line options, with the same names in every command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from clonos_py.settings.definitions import DEFINITIONS, Definition, Settings
from clonos_py.settings.resolution import resolve_here


def setting_options(*keys: str) -> list[click.Option]:
    """The options of these settings (all if ``keys`` is empty), in order. Omitted options leave settings unset."""
    return [_option(DEFINITIONS[key]) for key in keys or DEFINITIONS]


def _option(definition: Definition) -> click.Option:
    kind = definition.kind
    shown = kind.show(definition.default)
    help = definition.help if shown in ("none", "false") else f"{definition.help}  [default: {shown}]"
    if kind.flag:
        return click.Option([definition.option, definition.key], is_flag=True, default=None, help=help)
    return click.Option(
        [definition.option, definition.key], metavar=kind.metavar, multiple=kind.repeatable, default=None, help=help
    )


def resolved(job: Mapping[str, object], parameters: Mapping[str, Any]) -> Settings:
    """The settings of a run, by precedence: options, environment, ``clonos.toml`` here, the job, defaults."""
    given = {key: parameters[key] for key in DEFINITIONS if parameters.get(key) not in (None, ())}
    return resolve_here(job, command_line=given)


def file_in_a_folder(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Checks before the run that the report can be written."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise click.BadParameter(f"{path} must be a file in a folder that exists")
    return path
