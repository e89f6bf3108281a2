"""Writes the pages of the documents that list all commands and all settings, from the code: ``make reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from clonos_py.cli.main import clonos
from clonos_py.settings.definitions import DEFINITIONS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_WIDTH = 100


def commands() -> str:
    pages = [f"## {name}\n\n```text\n{text}\n```\n" for name, text in _helped(clonos, "clonos")]
    return "\n".join(["# Commands\n\nWhat each command prints with `--help`.\n", *pages])


def settings() -> str:
    rows = [
        f"| `{found.key}` | `{_cell(found.kind.show(found.default))}` | {_cell(found.help)} |"
        for found in DEFINITIONS.values()
    ]
    head = (
        "# All settings\n\n"
        "Each is an option of `clonos run` (`--checkpoint-interval 1s`), a variable (`CLONOS_CHECKPOINT_INTERVAL`), a\n"
        "key of `clonos.toml` (`checkpoint_interval`), and an argument of `Job(...)` and `job.run(...)`.\n"
        "`renames` and `kills` are the options `--rename` and `--kill`. Where a setting has several values the option\n"
        "is repeated, a variable has commas between them, and the others take a list.\n"
        "[Settings](../tasks/settings.md) explains them.\n\n"
        "| setting | default | meaning |\n|---|---|---|"
    )
    return "\n".join([head, *rows, ""])


PAGES = {"commands.md": commands, "settings.md": settings}


def _helped(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    context = click.Context(
        command, parent, name.rsplit(maxsplit=1)[-1], terminal_width=_WIDTH, **command.context_settings
    )
    yield name, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _helped(found, f"{name} {inner}", context)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for page, text in PAGES.items():
        (folder / page).write_text(text(), encoding="utf-8")
