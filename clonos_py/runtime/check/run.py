"""Checks whether a job is replayable: runs its operators in two processes, and compares the two trials (D12)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from subprocess import PIPE
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.model.errors import UserCodeError
from clonos_py.runtime import crash_notes
from clonos_py.runtime.check.findings import Finding, FindingKind
from clonos_py.runtime.check.trial import CheckTrial, OperatorTrial, TrialSpec

_DAY_US = 86_400_000_000
_HASH_SEEDS = ("1", "2")
_AHEAD_US = (0, _DAY_US + 3_600_000_000)
_SHOWN_CHARS = 120


@dataclass(frozen=True)
class Checked:
    """The outcome of a check. ``failures`` would end the job. ``notes`` say what could not be checked."""

    operators: int
    rows: int
    findings: tuple[Finding, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]


def check(file: str, parameters: Mapping[str, Any], rows: int, live: bool) -> Checked:
    """Tries the job of a file twice. ``live``: the first trial calls the real services. Raises UserCodeError if the
    file cannot be checked at all."""
    first = _try(TrialSpec(file, dict(parameters), rows, live, _AHEAD_US[0]), _HASH_SEEDS[0])
    second = _try(TrialSpec(file, dict(parameters), rows, False, _AHEAD_US[1], first), _HASH_SEEDS[1])
    findings = {*first.findings, *second.findings}
    watched = {finding.operator for finding in findings}
    others = {trial.name: [trial] for trial in second.operators}
    for repeated in first.repeated:
        others[repeated.name].append(repeated)
    for one in first.operators:
        differences = (finding for other in others[one.name] for finding in _differences(one, other))
        findings.update(itertools.islice(differences, 0 if one.name in watched else 1))
    every = [*first.operators, *first.sinks]
    worked = [trial for trial in every if trial.rows_in and not trial.skipped]
    return Checked(
        len(worked),
        max((trial.rows_in for trial in worked), default=0),
        tuple(sorted(findings, key=_place)),
        tuple(failure for trial in every if (failure := _failure(trial))),
        tuple(note for trial in every for note in _notes(trial)),
    )


def _try(spec: TrialSpec, hash_seed: str) -> CheckTrial:
    with tempfile.TemporaryDirectory(prefix="clonos-check-") as folder:
        spec_file, result_file = Path(folder, "spec"), Path(folder, "trial")
        spec_file.write_bytes(msgspec.msgpack.encode(spec))
        command = [sys.executable, "-m", "clonos_py.runtime.check.trial", str(spec_file), str(result_file)]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        with subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True) as process:
            _, printed = process.communicate()
        if process.returncode:
            ended = crash_notes.read(Path(folder), process.pid)
            reason = (printed.strip().splitlines() or ["no reason given"])[-1]
            raise ended or UserCodeError(f"the job cannot be checked: {reason}")
        return msgspec.msgpack.decode(result_file.read_bytes(), type=CheckTrial)


def _differences(one: OperatorTrial, other: OperatorTrial) -> list[Finding]:
    if "the second time" in other.error:
        return [Finding(one.name, one.where, FindingKind.QUESTION, other.error)]
    if one.error != other.error:
        what = f"failed in one trial only: {one.error or other.error}"
        return [Finding(one.name, one.where, FindingKind.OUTPUT, what)]
    for before, after in zip(one.output, other.output, strict=True):
        rows = zip_longest(*(pa.ipc.open_stream(data).read_all().to_pylist() for data in (before, after)))
        for number, (then, now) in enumerate(rows):
            if repr(then) != repr(now):
                rows_shown = f"{then!s:.{_SHOWN_CHARS}}, then {now!s:.{_SHOWN_CHARS}}"
                what = f"gave another row {number} for the same input: {rows_shown}"
                return [Finding(one.name, one.where, FindingKind.OUTPUT, what)]
    return []


def _failure(trial: OperatorTrial) -> str:
    """The failure that would end the job; empty if there is none. With made-up rows, or refused answers, an operator's
    failure does not count: these may be its cause."""
    if trial.source:
        return f"{trial.where}: source {trial.name!r} cannot be read: {trial.error}" if trial.error else ""
    if trial.made_up or trial.refused:
        return ""
    if trial.error:
        return f"{trial.where}: operator {trial.name!r} failed: {trial.error}"
    if trial.failed and not trial.caught:
        return f"{trial.where}: operator {_failed_rows(trial)}; fix it, or use catch()"
    return ""


def _notes(trial: OperatorTrial) -> list[str]:
    if trial.source:
        return [f"source {trial.name!r} gave no rows: they were made up from its schema"] if trial.made_up else []
    if trial.skipped:
        return [f"sink {trial.name!r} makes its rows visible, so it is tried only with --live"]
    if _failure(trial):
        return []
    notes = []
    if trial.error:
        notes.append(f"operator {trial.name!r} failed, so it is not fully checked: {trial.error}")
    if trial.failed:
        notes.append(f"operator {_failed_rows(trial)}")
    return notes


def _failed_rows(trial: OperatorTrial) -> str:
    return f"{trial.name!r} failed on {trial.failed} of {trial.rows_in} rows, first with: {trial.reason}"


def _place(finding: Finding) -> tuple[str, int, str]:
    file, _, line = finding.where.rpartition(":")
    return file, int(line) if line.isdigit() else 0, finding.what
