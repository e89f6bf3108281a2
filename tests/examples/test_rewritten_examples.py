"""The examples of other engines' documentation that are rewritten here give what their oracles say: from their files in
one process, and in the simulator with a kill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos_py import testing
from clonos_py.cli.main import invoke
from clonos_py.connectors import read_results
from tests.rewritten_examples import EXAMPLES, Rewritten, contents, given

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.module.__name__.split(".")[-1])


def last_of_each(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """All rows if there are no columns to tell them apart."""
    return list({tuple(row[name] for name in columns or row): row for row in rows}.values()) if columns else list(rows)


@every_example
def test_it_gives_the_answers_for_the_rows_of_its_files(example: Rewritten, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert invoke(["run", str(example.module.__file__), "--runtime", "local", "--out", out]) == 0
    inputs = example.inputs()
    for number, (sink, answer) in enumerate(example.sinks.items()):
        found = read_results(out if number == 0 else f"{out}-{sink}")
        assert contents(last_of_each(found, example.final)) == contents(answer(inputs)), sink


@every_example
def test_it_gives_the_answers_although_a_process_is_killed(example: Rewritten) -> None:
    job, inputs = example.module.job(), example.inputs()
    out = testing.run(job, {source: given(rows, job.record_of(source)) for source, rows in inputs.items()}, kills=1)
    for sink, answer in example.sinks.items():
        found = [msgspec.to_builtins(row) for row in out[sink]]
        assert contents(last_of_each(found, example.final)) == contents(answer(inputs)), sink
