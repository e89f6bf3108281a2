"""Resolves the settings of a run: where each value comes from, and which combinations are contradictory.

A value comes from the first of: arguments of ``job.run``, command line, ``CLONOS_*`` environment variables,
``clonos.toml``, ``Job(...)``, defaults. ``resolve`` reads all of them at once, so that an unknown name or a
contradiction is reported wherever it was written.
"""

from __future__ import annotations

import difflib
import itertools
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from clonos_py.model.errors import SettingError
from clonos_py.model.retention import Spill
from clonos_py.settings.definitions import DEFINITIONS, ENVIRONMENT_PREFIX, Guarantee, Preference, Runtime, Settings
from clonos_py.settings.kinds import FULL_DEPTH
from clonos_py.settings.protocols import CONTINUOUS

FILE_NAME = "clonos.toml"
ARGUMENT = "argument"
KERNELS_VARIABLE = "CLONOS_KERNELS"
"""Off: no native kernels. It is no setting, since each process reads it for itself and no result depends on it."""
OTHER_VARIABLES = frozenset({"CLONOS_DEBUG", KERNELS_VARIABLE})
"""Environment variables with the prefix that are not settings."""


def read_file(path: Path) -> dict[str, object]:
    """The settings that a ``clonos.toml`` holds; none if there is no such file. Raises SettingError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingError(f"{path} cannot be read: {error}") from error


def resolve(
    job: Mapping[str, object] | None = None,
    *,
    command_line: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Mapping[str, object] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> Settings:
    """The settings of a run, each value from the highest-ranking source that has it. All values are checked.

    Raises SettingError for an unknown name (with the nearest valid one), an invalid value, or a contradiction.
    """
    if (switch := (environment or {}).get(KERNELS_VARIABLE, "on")) not in ("on", "off"):
        raise SettingError(f"{KERNELS_VARIABLE} is {switch!r}: set it to on or off")
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key, value, origin in _named(job or {}, command_line or {}, environment or {}, file or {}, arguments or {}):
        values[key], origins[key] = _parsed(key, value, origin), origin
    settings = Settings(**{DEFINITIONS[key].attribute: value for key, value in values.items()}, origins=origins)
    return _consistent(settings)


_ADOPTED_US = 1_000_000
"""The interval from one snapshot to the next, where they are small (E15)."""


def resolve_here(job: Mapping[str, object], **given: Mapping[str, object]) -> Settings:
    """The settings of a run in this process: ``given`` (``command_line`` or ``arguments``) first, then the environment,
    ``clonos.toml`` in the working folder, the job and defaults. Raises SettingError."""
    return resolve(job, environment=os.environ, file=read_file(Path(FILE_NAME)), **given)


def _named(
    job: Mapping[str, object],
    command_line: Mapping[str, object],
    environment: Mapping[str, str],
    file: Mapping[str, object],
    arguments: Mapping[str, object],
) -> Iterator[tuple[str, object, str]]:
    """Every (name, value, origin) that was given, from the lowest-ranking source to the highest."""
    yield from ((key, value, "Job(...)") for key, value in job.items())
    yield from ((key, value, FILE_NAME) for key, value in file.items())
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in OTHER_VARIABLES:
            yield variable.removeprefix(ENVIRONMENT_PREFIX).lower(), environment[variable], variable
    for key, value in command_line.items():
        yield key, value, DEFINITIONS[key].option if key in DEFINITIONS else "command line"
    yield from ((key, value, ARGUMENT) for key, value in arguments.items())


def _parsed(key: str, value: object, origin: str) -> Any:
    if key not in DEFINITIONS:
        near = difflib.get_close_matches(key, DEFINITIONS, n=1)
        hint = f": did you mean {near[0]}?" if near else f"; there are {', '.join(DEFINITIONS)}"
        raise SettingError(f"{origin}: unknown setting {key}{hint}")
    try:
        return DEFINITIONS[key].kind.parse(value)
    except SettingError as error:
        raise SettingError(f"{key} ({origin}): {error}") from None


def _consistent(settings: Settings) -> Settings:
    """Checks that settings are consistent, and derives unset ones from set ones."""
    settings = _with_logging_that_fits(settings)
    if settings.protocol.partwise and "checkpoint_interval" not in settings.origins:
        settings = _following(settings, "checkpoint_interval", _ADOPTED_US, "protocol")
    given = settings.origins
    if "beyond_sharing_depth" in given and settings.guarantee is not Guarantee.EXACTLY_ONCE:
        _refuse(settings, "beyond_sharing_depth", "guarantee", "below exactly-once nothing is ever rolled back")
    if settings.rollback and settings.beyond_sharing_depth is Preference.AVAILABILITY:
        _refuse(settings, "beyond_sharing_depth", "sharing_depth", "without determinants exactly-once has to roll back")
    if settings.rollback and settings.spill is Spill.REGENERATE:
        _refuse(settings, "spill", "sharing_depth", "frames are made again from the log, and depth 0 keeps none")
    alone = not settings.protocol.coordinated and settings.protocol.rolls_back
    if alone and settings.sharing_depth != FULL_DEPTH and not settings.rollback:
        _refuse(
            settings,
            "protocol",
            "sharing_depth",
            "snapshots that tasks take alone fit together by all determinants; by none with guarantee = exactly-once",
        )
    if not settings.protocol.coordinated and settings.spill is Spill.REGENERATE:
        _refuse(settings, "protocol", "spill", "frames are stored with snapshots, and what is made again is not kept")
    if settings.key_groups < settings.parallelism:
        _refuse(settings, "parallelism", "key_groups", "every task needs a key group of its own")
    if settings.address is not None and settings.runtime is not Runtime.RAY:
        _refuse(settings, "address", "runtime", "only the ray runtime joins a cluster")
    if settings.fresh and settings.checkpoints is None:
        _refuse(settings, "fresh", "checkpoints", "without a checkpoint folder every run is fresh")
    for key in ("drop_state", "renames"):
        if getattr(settings, key) and settings.checkpoints is None:
            _refuse(settings, key, "checkpoints", "without a checkpoint folder there is no state to resume with")
        if getattr(settings, key) and settings.fresh:
            _refuse(settings, key, "fresh", "one resumes with state, the other starts over")
    if settings.take_over and settings.runtime is not Runtime.RAY:
        _refuse(settings, "take_over", "runtime", "running jobs have names only on a Ray cluster")
    if settings.take_over and settings.checkpoints is None:
        _refuse(settings, "take_over", "checkpoints", "without a checkpoint folder there is nothing to continue from")
    if settings.take_over and settings.fresh:
        _refuse(settings, "take_over", "fresh", "one continues from the last checkpoint, the other starts over")
    if "standbys_per_process" in given and settings.standbys_per_process > 1 and settings.standbys == 0:
        _refuse(settings, "standbys_per_process", "standbys", "there are no standbys that could share a process")
    if settings.standby_feed_us and settings.guarantee is not Guarantee.EXACTLY_ONCE:
        _refuse(settings, "standby_feed", "guarantee", "a standby that is fed needs all determinants of its task")
    if settings.standby_feed_us and settings.sharing_depth != FULL_DEPTH:
        _refuse(settings, "standby_feed", "sharing_depth", "a standby that is fed needs all determinants of its task")
    if settings.standby_feed_us and settings.standbys == 0:
        _refuse(settings, "standby_feed", "standbys", "there are no standbys that could be fed")
    if settings.record and settings.guarantee is Guarantee.AT_MOST_ONCE:
        _refuse(settings, "record", "guarantee", "what at-most-once leaves out cannot be replayed")
    if settings.web_token_file is not None and settings.web is None:
        _refuse(settings, "web_token_file", "web", "without an address nothing is served")
    if settings.web is not None and not settings.web.is_loopback and settings.web_token_file is None:
        _refuse(settings, "web", "web_token_file", "others reach this address, so it needs a token")
    _check_footprints(settings)
    _check_interval(settings)
    for absent, present in itertools.permutations(("tls_certificate", "tls_key", "tls_ca"), 2):
        if getattr(settings, present) is not None and getattr(settings, absent) is None:
            _refuse(settings, present, absent, "TLS needs certificate, key and authority")
    by_threshold = settings.spill in (Spill.THRESHOLD, Spill.REGENERATE)
    if "spill_threshold" in given and not by_threshold:
        _refuse(settings, "spill_threshold", "spill", "a threshold needs spill = spill-threshold or regenerate")
    if by_threshold and settings.spill_threshold_bytes > settings.in_flight_budget_bytes:
        _refuse(settings, "spill_threshold", "in_flight_budget", "the budget would be spent before the threshold")
    if settings.spill is Spill.REGENERATE and settings.guarantee is not Guarantee.EXACTLY_ONCE:
        _refuse(settings, "spill", "guarantee", "frames are made again from the log that exactly-once keeps")
    return settings


def check_run(settings: Settings) -> None:
    """Raises SettingError if no run can follow the settings. A job may be planned and tested with them: it may name a
    record, and the command line the folder."""
    if settings.record and settings.checkpoints is None:
        _refuse(settings, "record", "checkpoints", "determinants are kept in the checkpoint folder")


def _check_footprints(settings: Settings) -> None:
    """Raises SettingError if settings of a protocol that saves state in parts cannot be followed."""
    if not settings.protocol.partwise:
        for key in ("extent_max", "replay_max", "check_time", "check_period"):
            if key in settings.origins:
                _refuse(settings, key, "protocol", f"only protocol = {CONTINUOUS} saves windows one by one")
        return
    if settings.sharing_depth != FULL_DEPTH:
        _refuse(settings, "protocol", "sharing_depth", "windows saved at several times need all determinants")
    if settings.check_time_us > settings.check_period_us:
        _refuse(settings, "check_time", "check_period", "the time to save windows is a part of the period")


def _check_interval(settings: Settings) -> None:
    """Raises SettingError for bounds of the checkpoint interval that cannot be followed."""
    if not settings.finds_interval:
        for key in ("checkpoint_interval_min", "checkpoint_interval_max"):
            if key in settings.origins:
                _refuse(settings, key, "checkpoint_interval", "only checkpoint_interval = auto has bounds")
    elif settings.checkpoint_interval_min_us > settings.checkpoint_interval_max_us:
        _refuse(
            settings,
            "checkpoint_interval_min",
            "checkpoint_interval_max",
            "the shortest interval is longer than the longest",
        )


def _with_logging_that_fits(settings: Settings) -> Settings:
    """Derives the guarantee from the sharing depth, or the depth from the guarantee, if only one was given.
    Exactly-once with depth 0, both given, is rollback recovery (E2)."""
    stated_guarantee, stated_depth = "guarantee" in settings.origins, "sharing_depth" in settings.origins
    logging = settings.sharing_depth != 0
    match settings.guarantee:
        case Guarantee.EXACTLY_ONCE if not logging and not stated_guarantee:
            return _following(settings, "guarantee", Guarantee.AT_LEAST_ONCE, "sharing_depth")
        case Guarantee.AT_MOST_ONCE if logging and stated_depth:
            _refuse(settings, "guarantee", "sharing_depth", "at-most-once replays nothing, so its depth is 0")
        case Guarantee.AT_MOST_ONCE | Guarantee.AT_LEAST_ONCE if not stated_depth:
            return _following(settings, "sharing_depth", 0, "guarantee")
    return settings


def _following(settings: Settings, key: str, value: object, cause: str) -> Settings:
    origins = {**settings.origins, key: f"follows from {cause} ({settings.origin(cause)})"}
    values = {found.name: getattr(settings, found.name) for found in fields(Settings)}
    return Settings(**{**values, DEFINITIONS[key].attribute: value, "origins": origins})


def _refuse(settings: Settings, first: str, second: str, why: str) -> None:
    shown = {key: f"{key} = {value} ({origin})" for key, value, origin in settings.shown()}
    raise SettingError(f"{shown[first]} contradicts {shown[second]}: {why}")
