"""The text of a test that repeats what a record holds."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clonos_py.cli.python_text import Brackets, Literals, Named, Source, call, laid_out, quoted
from clonos_py.dsl.loading import JobFile
from clonos_py.model.asked import KINDS
from clonos_py.model.errors import SettingError
from clonos_py.model.record import Record

_ROWS_EXPECTED_MAX = 10


@dataclass(frozen=True)
class RecordedCase:
    """``inputs``: by source. ``times``, ``draws``, ``answers``, ``timers``: see ``testing.run``. ``expected``: all rows
    of the sink in this order, of which ``number`` is the one that was asked for."""

    sink: str
    inputs: Mapping[str, Sequence[Record]]
    times: Mapping[str, Sequence[int]]
    draws: Mapping[str, Sequence[float | int]]
    answers: Mapping[str, Sequence[Any]]
    timers: Mapping[str, Sequence[tuple[int, int]]]
    expected: Sequence[Record]
    number: int


class CaseText:
    """Writes the module. ``values``: the parameters of the job function. ``alone``: whether the job has other sinks."""

    def __init__(self, jobs: JobFile, values: Mapping[str, Any], case: RecordedCase, path: Path, alone: bool) -> None:
        self._jobs, self._case, self._path, self._alone = jobs, case, path, alone
        self._module = sys.modules[jobs.module]
        self._rows: dict[type[Record], str] = {}
        """By generated class of the rows of a source: the name that it gets in the test."""
        self._row_sources: dict[str, str] = {}
        self._literals = Literals(self._class_name)
        offered = jobs.found if jobs.make is None else jobs.make
        name = next(name for name, value in vars(self._module).items() if value is offered)
        self._job = f"{jobs.module}.{name}"
        if jobs.make is not None:
            given = [f"{name}={self._literals.of(value)}" for name, value in values.items() if value is not None]
            self._job += f"({', '.join(given)})"

    def text(self, docstring: Sequence[str]) -> str:
        """The module. ``docstring``: its lines."""
        body = self._body()
        one = len(docstring) == 1
        head = [f'"""{docstring[0]}"""'] if one else [f'"""{docstring[0]}', *docstring[1:], '"""']
        made = self._literals.imports
        standard = [f"from {name} import {_names(made[name])}" for name in ("datetime", "decimal") if name in made]
        others = [f"from {name} import {_names(made[name])}" for name in sorted(made) if name.startswith("clonos")]
        if any(name == "clonos_py" for name in made):
            others = [f"from clonos_py import {_names({*made['clonos_py'], 'testing'})}"]
        else:
            others = ["from clonos_py import testing", *others]
        first = ["import sys", *sorted([*standard, "from pathlib import Path"])]
        folder = Path(os.path.relpath(self._jobs.path.parent, self._path.absolute().parent)).as_posix()
        below = "" if folder == "." else f" / {quoted(folder)}"
        place = f"sys.path.insert(0, str(Path(__file__).parent{below}))"
        own = [f"import {self._jobs.module}  # noqa: E402"]
        own += [
            f"from {name} import {_names(made[name])}  # noqa: E402"
            for name in sorted(made)
            if name not in ("datetime", "decimal", "clonos_py")
        ]
        return "\n".join([*head, "", *first, "", *others, "", place, "", *own, "", "", *body, ""])

    def _body(self) -> list[str]:
        case = self._case
        inputs = Brackets(
            "{", [Named(f"{quoted(name)}: ", self._list(rows)) for name, rows in case.inputs.items()], "}"
        )
        given: list[Source] = [f"sinks=[{quoted(case.sink)}]"] if self._alone else []
        given += [Named(f"{kind}=", kind) for kind in KINDS if getattr(case, kind)]
        assigned = [line for name in KINDS for line in self._assigned(name)]
        shown = laid_out(inputs, 4, "inputs = ")
        ran = laid_out(call("testing.run", [self._job, "inputs", *given]), 4, "out = ")
        expected = self._assertion()
        made = [f"    {name} = {self._job}.record_of({quoted(of)})" for name, of in self._row_sources.items()]
        title = re.sub(r"\W+", "_", case.sink).strip("_").lower()
        return [f"def test_row_of_{title}() -> None:", *made, *shown, *assigned, *ran, *expected]

    def _assigned(self, kind: str) -> list[str]:
        given: Mapping[str, Sequence[Any]] = getattr(self._case, kind)
        if not given:
            return []
        entries = [Named(f"{quoted(name)}: ", Brackets("[", [self._answer(v) for v in values], "]"))
                   for name, values in given.items()]  # fmt: skip
        return laid_out(Brackets("{", entries, "}"), 4, f"{kind} = ")

    def _answer(self, value: Any) -> Source:
        if not (isinstance(value, dict) and value.keys() == {"status", "headers", "content"}):
            return self._literals.of(value)
        more: list[Source] = []
        try:
            more.append(quoted(value["content"].decode()))
        except UnicodeDecodeError:
            more.append(Named("content=", self._literals.of(value["content"])))
        if value["status"] != 200:
            more.append(f"status={value['status']}")
        if value["headers"]:
            more.append(Named("headers=", self._literals.of(value["headers"])))
        return call("testing.http_answer", more)

    def _list(self, rows: Sequence[Record]) -> Source:
        return Brackets("[", [self._literals.of(row) for row in rows], "]")

    def _assertion(self) -> list[str]:
        """One assertion, about all rows or, if they are many, about the one."""
        case, out = self._case, f"out[{quoted(self._case.sink)}]"
        rows = case.expected
        few = len(rows) <= _ROWS_EXPECTED_MAX
        if not few:
            rows, out = rows[case.number : case.number + 1], f"{out}[{case.number}]"
        if self._importable(type(rows[0])):
            wanted = self._list(rows) if few else self._literals.of(rows[0])
            return laid_out(wanted, 4, f"assert {out} == ")
        names = type(rows[0]).__struct_fields__
        tuples = [self._literals.of(tuple(getattr(row, name) for name in names)) for row in rows]
        if not few:
            got = f"[getattr({out}, name) for name in columns]"
            wanted = Brackets("[", [self._literals.of(getattr(rows[0], name)) for name in names], "]")
        else:
            got, wanted = (
                f"[tuple(getattr(row, name) for name in columns) for row in {out}]",
                Brackets("[", tuples, "]"),
            )
        columns = laid_out(Brackets("[", [quoted(name) for name in names], "]"), 4, "columns = ")
        return [*columns, f"    rows = {got}", *laid_out(wanted, 4, "assert rows == ")]

    def _class_name(self, kind: type[Record]) -> str:
        if getattr(self._module, kind.__qualname__, None) is kind:
            return f"{self._jobs.module}.{kind.__qualname__}"
        if self._importable(kind):
            self._literals.imports.setdefault(kind.__module__, set()).add(kind.__qualname__)
            return kind.__qualname__
        if kind not in self._rows:
            source = next((n for n, rows in self._case.inputs.items() if rows and type(rows[0]) is kind), None)
            if source is None:
                raise SettingError(f"a test cannot make rows of {kind.__qualname__}: declare it at the top of a module")
            self._rows[kind] = f"Row{len(self._rows) + 1}" if self._rows else "Row"
            self._row_sources[self._rows[kind]] = source
        return self._rows[kind]

    def _importable(self, kind: type[Record]) -> bool:
        return getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind


def _names(names: set[str]) -> str:
    """Names of an import, in the order of ruff: constants, classes, others."""
    return ", ".join(sorted(names, key=lambda n: (0 if n.isupper() else 1 if n[0].isupper() else 2, n)))
