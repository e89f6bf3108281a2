"""Settings: what a run can be told, where each value came from, and which combinations cannot be.

A value is taken from the first of: command line, ``CLONOS_*`` environment variables, ``clonos.toml``, ``Job(...)``,
defaults. ``resolve`` does this for all of them at once, so that an unknown name or a contradiction is found wherever
it was written. ``Settings()`` are the defaults.
"""

from __future__ import annotations

import difflib
import itertools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from clonos_py.dsl.values import (
    DEPTH,
    DURATION,
    FILE,
    FLAG,
    FOLDER,
    KILLS,
    NAMES,
    RENAMES,
    SIZE,
    TEXT,
    Kill,
    Kind,
    Rename,
    choice,
    count,
)
from clonos_py.model.errors import SettingError
from clonos_py.model.retention import Spill

T = TypeVar("T")

FILE_NAME = "clonos.toml"
ENVIRONMENT_PREFIX = "CLONOS_"
OTHER_VARIABLES = frozenset({"CLONOS_DEBUG"})
"""Environment variables with the prefix that are no settings."""
DEFAULT = "default"


class Guarantee(Enum):
    """How often a record takes effect when tasks fail."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


class Preference(Enum):
    """What matters more when both cannot be had."""

    CONSISTENCY = "consistency"
    AVAILABILITY = "availability"


class Runtime(Enum):
    """Where tasks run."""

    RAY = "ray"
    LOCAL = "local"
    SIM = "sim"


class Definition(NamedTuple):
    """One setting: its name for people, its field here, how it is read and what it is for."""

    key: str
    attribute: str
    kind: Kind[Any]
    help: str
    default: Any

    @property
    def option(self) -> str:
        return "--" + {"kills": "kill", "renames": "rename"}.get(self.key, self.key.replace("_", "-"))

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.key.upper()


def _setting(kind: Kind[T], default: object, help: str, key: str = "") -> T:
    return field(default=kind.parse(default), metadata={"kind": kind, "help": help, "key": key})


@dataclass(frozen=True)
class Settings:
    """Every setting with its value; ``origins`` tells by name where it came from."""

    parallelism: int = _setting(count(1), 1, "How many tasks run each operator.")
    guarantee: Guarantee = _setting(
        choice(Guarantee), "exactly-once", "How often a record takes effect when tasks fail."
    )
    sharing_depth: int = _setting(DEPTH, "full", "How many hops downstream determinants are kept; 0 turns logging off.")
    beyond_sharing_depth: Preference = _setting(
        choice(Preference),
        "consistency",
        "When more tasks fail at once than the depth covers: roll back, or go on at-least-once, counted and told.",
    )
    standbys: int = _setting(count(), 1, "How many standbys wait for each task to fail.")
    standbys_per_process: int = _setting(
        count(1), 1, "How many standbys of different tasks may share a process until one of them is needed."
    )
    runtime: Runtime = _setting(choice(Runtime), "ray", "Where tasks run: Ray actors, this process, or the simulator.")
    address: str | None = _setting(TEXT, None, "The Ray cluster to join; without one a local Ray is started.")
    checkpoints: str | None = _setting(FOLDER, None, "Folder or URI of the checkpoints; a run resumes what is there.")
    fresh: bool = _setting(FLAG, False, "Archive what the checkpoint folder holds and start anew.")
    take_over: bool = _setting(FLAG, False, "Stop the job of this name that runs, and go on from its last checkpoint.")
    checkpoint_interval_us: int = _setting(DURATION, "5s", "Time between checkpoints.", "checkpoint_interval")
    checkpoint_timeout_us: int = _setting(
        DURATION, "10min", "Abort a checkpoint that takes longer.", "checkpoint_timeout"
    )
    checkpoints_kept: int = _setting(count(1), 2, "How many completed checkpoints are kept.")
    drop_state: tuple[str, ...] = _setting(
        NAMES, (), "Resume without the state of an operator that the job no longer has."
    )
    renames: tuple[Rename, ...] = _setting(
        RENAMES, (), "Resume with the state of operator OLD as that of NEW, which is its name now."
    )
    key_groups: int = _setting(count(1), 128, "Units in which keyed state moves; fixed by the first checkpoint.")
    linger_us: int = _setting(DURATION, "10ms", "How long rows may wait for a frame to fill.", "linger")
    time_granularity_us: int = _setting(
        DURATION, "1ms", "How long ctx.time.now() may repeat its last answer; 0s asks the clock every time.",
        "time_granularity",
    )  # fmt: skip
    frame_rows: int = _setting(count(1), 65_536, "Most rows in a frame between tasks.")
    in_flight_budget_bytes: int = _setting(
        SIZE, "1GiB", "Bytes of sent frames that a task retains for replay.", "in_flight_budget"
    )
    spill: Spill = _setting(choice(Spill), "in-memory", "Where frames live that may have to be sent again.")
    spill_threshold_bytes: int = _setting(
        SIZE, "256MiB", "Retained bytes beyond which spill-threshold writes to disk.", "spill_threshold"
    )
    heartbeat_timeout_us: int = _setting(DURATION, "2s", "A task silent for so long has failed.", "heartbeat_timeout")
    function_timeout_us: int = _setting(
        DURATION, "60s", "Report a function that has been at work on one row for so long.", "function_timeout"
    )
    connection_timeout_us: int = _setting(
        DURATION, "20s", "Replace one of two tasks that cannot connect for so long.", "connection_timeout"
    )
    start_timeout_us: int = _setting(DURATION, "60s", "Give up when no process starts for so long.", "start_timeout")
    tls_certificate: str | None = _setting(
        FILE, None, "Certificate for TLS between nodes; this file and the next two are needed on every node."
    )
    tls_key: str | None = _setting(FILE, None, "Key of the certificate, without a password.")
    tls_ca: str | None = _setting(FILE, None, "Certificate of the authority that has signed every node's certificate.")
    trace: str | None = _setting(
        FOLDER, None, "A new folder for the run's trace, which `clonos analyze` makes a report of."
    )
    seed: int = _setting(count(), 0, "Seed of the simulator and of everything else that is drawn on purpose.")
    kills: tuple[Kill, ...] = _setting(KILLS, (), "Kill an instance of an operator at a time, as in 'join[0]@3s'.")
    origins: Mapping[str, str] = field(default_factory=dict)

    def origin(self, key: str) -> str:
        return self.origins.get(key, DEFAULT)

    def shown(self) -> Iterator[tuple[str, str, str]]:
        """Every setting as (name, value as one would write it, where it came from)."""
        for definition in DEFINITIONS.values():
            value = definition.kind.show(getattr(self, definition.attribute))
            yield definition.key, value, self.origin(definition.key)


def _definitions() -> Iterator[Definition]:
    for found in fields(Settings):
        if found.metadata:
            key = found.metadata["key"] or found.name
            yield Definition(key, found.name, found.metadata["kind"], found.metadata["help"], found.default)


DEFINITIONS: Mapping[str, Definition] = {definition.key: definition for definition in _definitions()}
"""All settings by name, in the order in which they are shown."""


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
) -> Settings:
    """The settings of a run, each value from the highest place that names it. Values are checked wherever they stand.

    Raises SettingError for an unknown name (with the nearest known one), a value that cannot be, a contradiction.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key, value, origin in _named(job or {}, command_line or {}, environment or {}, file or {}):
        values[key], origins[key] = _parsed(key, value, origin), origin
    settings = Settings(**{DEFINITIONS[key].attribute: value for key, value in values.items()}, origins=origins)
    return _consistent(settings)


def _named(
    job: Mapping[str, object],
    command_line: Mapping[str, object],
    environment: Mapping[str, str],
    file: Mapping[str, object],
) -> Iterator[tuple[str, object, str]]:
    """Every (name, value, origin) that was written, the lowest place first."""
    yield from ((key, value, "Job(...)") for key, value in job.items())
    yield from ((key, value, FILE_NAME) for key, value in file.items())
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in OTHER_VARIABLES:
            yield variable.removeprefix(ENVIRONMENT_PREFIX).lower(), environment[variable], variable
    for key, value in command_line.items():
        yield key, value, DEFINITIONS[key].option if key in DEFINITIONS else "command line"


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
    """Checks what holds between settings and lets unset ones follow from set ones."""
    settings = _with_logging_that_fits(settings)
    given = settings.origins
    if "beyond_sharing_depth" in given and settings.guarantee is not Guarantee.EXACTLY_ONCE:
        _refuse(settings, "beyond_sharing_depth", "guarantee", "below exactly-once nothing is ever rolled back")
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
            _refuse(settings, key, "fresh", "one resumes with state, the other starts anew")
    if settings.take_over and settings.runtime is not Runtime.RAY:
        _refuse(settings, "take_over", "runtime", "only on a Ray cluster are running jobs known by name")
    if settings.take_over and settings.checkpoints is None:
        _refuse(settings, "take_over", "checkpoints", "without a checkpoint folder there is nothing to go on from")
    if settings.take_over and settings.fresh:
        _refuse(settings, "take_over", "fresh", "one goes on from the last checkpoint, the other starts anew")
    if settings.standbys_per_process > 1 and settings.standbys == 0:
        _refuse(settings, "standbys_per_process", "standbys", "there are no standbys that could share a process")
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


def _with_logging_that_fits(settings: Settings) -> Settings:
    """Guarantee and sharing depth: whichever was not said follows from the other."""
    stated_guarantee, stated_depth = "guarantee" in settings.origins, "sharing_depth" in settings.origins
    logging = settings.sharing_depth != 0
    match settings.guarantee:
        case Guarantee.EXACTLY_ONCE if not logging and stated_guarantee:
            _refuse(settings, "guarantee", "sharing_depth", "exactly-once needs determinants, so a depth of at least 1")
        case Guarantee.EXACTLY_ONCE if not logging:
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
