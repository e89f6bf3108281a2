"""The settings of a run: names, kinds, defaults and help texts. ``Settings()`` has the defaults.

Planning and running a job read them. ``settings.resolution`` decides where each value comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from clonos_py.model.ids import DEFAULT_NAMESPACE
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.model.record_limits import RecordLimit
from clonos_py.model.reports import LogFormat, LogLevel
from clonos_py.model.retention import Spill
from clonos_py.settings.kinds import (
    AUTO,
    DEPTH,
    DURATION,
    DURATION_OR_AUTO,
    DURATION_OR_OFF,
    FILE,
    FLAG,
    FOLDER,
    KILLS,
    NAMES,
    RECORD,
    RENAMES,
    SHARE,
    SIZE,
    SWITCH,
    TEXT,
    WEB,
    WORD,
    Kill,
    ListenAddress,
    Rename,
    SettingKind,
    choice,
    count,
    named,
)
from clonos_py.settings.protocols import DEFAULT_PROTOCOL, PROTOCOLS

T = TypeVar("T")

ENVIRONMENT_PREFIX = "CLONOS_"
DEFAULT = "default"


class Guarantee(Enum):
    """How often a record takes effect when tasks fail."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


class Preference(Enum):
    """What to keep when consistency and availability cannot both be kept."""

    CONSISTENCY = "consistency"
    AVAILABILITY = "availability"


class Runtime(Enum):
    """Where tasks run."""

    RAY = "ray"
    LOCAL = "local"
    SIM = "sim"


class CallTimes(Enum):
    """When tasks that take snapshots on their own, without barriers, are asked to take one (E5)."""

    STAGGERED = "staggered"
    INDEPENDENT = "independent"


class Definition(NamedTuple):
    """One setting: its external name, its field in Settings, how its value is read, and its help text."""

    key: str
    attribute: str
    kind: SettingKind[Any]
    help: str
    default: Any

    @property
    def option(self) -> str:
        return "--" + {"kills": "kill", "renames": "rename"}.get(self.key, self.key.replace("_", "-"))

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.key.upper()


def _setting(kind: SettingKind[T], default: object, help: str, key: str = "") -> T:
    return field(default=kind.parse(default), metadata={"kind": kind, "help": help, "key": key})


@dataclass(frozen=True)
class Settings:
    """Every setting with its value. ``origins`` has, by name, where a value came from."""

    parallelism: int = _setting(count(1), 1, "How many tasks run each operator.")
    guarantee: Guarantee = _setting(
        choice(Guarantee), "exactly-once", "How often a record takes effect when tasks fail."
    )
    sharing_depth: int = _setting(DEPTH, "full", "How many hops downstream determinants are kept; 0 turns logging off.")
    protocol: ProtocolProperties = _setting(
        named(PROTOCOLS), DEFAULT_PROTOCOL.name, "The checkpoint protocol: how tasks agree on a checkpoint."
    )
    chaining: bool = _setting(
        SWITCH,
        "on",
        "Operators that need no shuffle between them run in one task; off: each operator has its own tasks.",
    )
    beyond_sharing_depth: Preference = _setting(
        choice(Preference),
        "consistency",
        "When more tasks fail at once than the depth covers: roll back, or continue at-least-once and report it.",
    )
    standbys: int = _setting(count(), 1, "How many standbys wait for each task to fail.")
    standbys_per_process: int = _setting(
        count(1), 8, "How many standbys of different tasks may share a process until one of them is needed."
    )
    standby_cpus: float = _setting(
        SHARE, 0, "The share of the processors of a task that each of its standbys reserves, too: 0 to 1."
    )
    standby_feed_us: int = _setting(
        DURATION_OR_OFF,
        "off",
        "Feed standbys what has changed, this often; off: they have the last checkpoint.",
        "standby_feed",
    )
    runtime: Runtime = _setting(choice(Runtime), "ray", "Where tasks run: Ray actors, this process, or the simulator.")
    address: str | None = _setting(
        TEXT,
        None,
        "The Ray cluster to join; without one, that of the submitted Ray job it runs in, else a local Ray is started.",
    )
    namespace: str = _setting(
        WORD, DEFAULT_NAMESPACE, "The namespace of jobs on a Ray cluster: names are unique in it, and commands see one."
    )
    checkpoints: str | None = _setting(FOLDER, None, "Folder or URI of the checkpoints; a run resumes what is there.")
    fresh: bool = _setting(FLAG, False, "Archive what the checkpoint folder holds and start over.")
    take_over: bool = _setting(FLAG, False, "Stop the running job of this name, and continue from its last checkpoint.")
    checkpoint_interval_us: int = _setting(
        DURATION_OR_AUTO,
        "5s",
        "Time between checkpoints; auto: the job measures its costs and failures, and takes the best.",
        "checkpoint_interval",
    )
    checkpoint_interval_min_us: int = _setting(
        DURATION, "1s", "The shortest interval that auto takes.", "checkpoint_interval_min"
    )
    checkpoint_interval_max_us: int = _setting(
        DURATION, "10min", "The longest interval that auto takes.", "checkpoint_interval_max"
    )
    extent_max: int = _setting(
        count(), 0, "continuous: save windows again while a restart would read more footprints than this; 0: no target."
    )
    replay_max: int = _setting(
        count(), 0, "continuous: save windows again while a restart would take more rows again; 0: no target."
    )
    check_time_us: int = _setting(
        DURATION_OR_OFF, "5ms", "continuous: the most time to save windows again in each check_period.", "check_time"
    )
    check_period_us: int = _setting(DURATION, "100ms", "continuous: how often windows are saved again.", "check_period")
    mtbf_us: int = _setting(DURATION, "24h", "The mean time between failures of a task that is expected.", "mtbf")
    checkpoint_calls: CallTimes = _setting(
        choice(CallTimes),
        "staggered",
        "When tasks that take snapshots alone take them: each soon after its receivers, or at independent times.",
    )
    checkpoint_timeout_us: int = _setting(
        DURATION, "10min", "Abort a checkpoint that takes longer.", "checkpoint_timeout"
    )
    checkpoints_kept: int = _setting(count(1), 2, "How many completed checkpoints are kept.")
    record: RecordLimit = _setting(
        RECORD,
        "off",
        "Keep all determinants for this long, or up to this size, so that what the job did can be replayed; off: only "
        "for recovery.",
    )
    drop_state: tuple[str, ...] = _setting(
        NAMES,
        (),
        "Resume without the state of an operator: the job no longer has it, or it begins with an empty state.",
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
    spill: Spill = _setting(choice(Spill), "in-memory", "Where sent frames are retained for replay.")
    spill_threshold_bytes: int = _setting(
        SIZE, "256MiB", "Retained bytes beyond which spill-threshold writes to disk.", "spill_threshold"
    )
    heartbeat_timeout_us: int = _setting(
        DURATION, "2s", "A task that is silent for this long has failed.", "heartbeat_timeout"
    )
    function_timeout_us: int = _setting(
        DURATION, "60s", "Report a function that has processed one row for this long.", "function_timeout"
    )
    connection_timeout_us: int = _setting(
        DURATION, "20s", "Replace one of two tasks that cannot connect for this long.", "connection_timeout"
    )
    start_timeout_us: int = _setting(DURATION, "60s", "Give up when no process starts for this long.", "start_timeout")
    tls_certificate: str | None = _setting(
        FILE, None, "Certificate for TLS between nodes; this file and the next two are needed on every node."
    )
    tls_key: str | None = _setting(FILE, None, "Key of the certificate, without a password.")
    tls_ca: str | None = _setting(FILE, None, "Certificate of the authority that has signed every node's certificate.")
    trace: str | None = _setting(
        FOLDER, None, "A new folder for the run's trace, which `clonos analyze` makes a report of."
    )
    log_level: LogLevel = _setting(
        choice(LogLevel),
        "info",
        "What a run without a terminal reports while it runs: checkpoints and recoveries, too, or only warnings.",
    )
    log_format: LogFormat = _setting(
        choice(LogFormat), "plain", "Lines for people, or one JSON object for each; those also on a terminal."
    )
    web: ListenAddress | None = _setting(
        WEB, None, "Serve metrics for Prometheus, health and the state of the run over HTTP at this address."
    )
    web_token_file: str | None = _setting(
        FILE, None, "File with the token that requests need; an address beyond this machine needs one."
    )
    seed: int = _setting(count(), 0, "Seed of the simulator, of generated events and of what a failure plan draws.")
    kills: tuple[Kill, ...] = _setting(KILLS, (), "Kill an instance of an operator at a time, as in 'join[0]@3s'.")
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def finds_interval(self) -> bool:
        """Whether the job finds its checkpoint interval itself (E20)."""
        return self.checkpoint_interval_us == AUTO

    @property
    def rollback(self) -> bool:
        """Whether the job uses rollback recovery: exactly-once without determinants (E2). A failure then rolls back all
        tasks that depend on the failed one."""
        return self.guarantee is Guarantee.EXACTLY_ONCE and self.sharing_depth == 0

    def origin(self, key: str) -> str:
        return self.origins.get(key, DEFAULT)

    def shown(self) -> Iterator[tuple[str, str, str]]:
        """Every setting as (name, value as a user would write it, origin)."""
        for definition in DEFINITIONS.values():
            value = definition.kind.show(getattr(self, definition.attribute))
            yield definition.key, value, self.origin(definition.key)

    def written(self) -> Iterator[tuple[str, str]]:
        """(name, value as a user would write it) of each setting that was given or follows from one that was. Resolving
        these gives the same settings."""
        for definition in DEFINITIONS.values():
            value = getattr(self, definition.attribute)
            chosen = definition.key in self.origins or value != definition.default
            if chosen and value is not None and value != ():
                yield definition.key, _written(definition.kind, value)


def _written(kind: SettingKind[Any], value: Any) -> str:
    """In a list, values are separated by commas, as in an environment variable."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else kind.show(value)


def _definitions() -> Iterator[Definition]:
    for found in fields(Settings):
        if found.metadata:
            key = found.metadata["key"] or found.name
            yield Definition(key, found.name, found.metadata["kind"], found.metadata["help"], found.default)


DEFINITIONS: Mapping[str, Definition] = {definition.key: definition for definition in _definitions()}
"""All settings by name, in the order in which they are listed."""
