"""Generates a scenario from a seed: a job, the conditions of its run, and its faults."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clonos_py.model.errors import SettingError
from clonos_py.model.plan import Partitioning
from clonos_py.model.protocols import FootprintPolicy, ProtocolProperties
from clonos_py.model.record_limits import NO_RECORD, RecordLimit
from clonos_py.model.retention import Spill
from clonos_py.runtime.sim.chaos import Fault, FaultKind
from clonos_py.runtime.sim.cyclic import with_loop
from clonos_py.runtime.sim.origin import Volume
from clonos_py.runtime.sim.steps import JOINING, LOOKING_UP, RANKING, StepKind
from clonos_py.runtime.sim.topology import InputEdge, SimulatedVertex, Topology
from clonos_py.settings.protocols import DEFAULT_PROTOCOL, PROTOCOLS

CAUSAL, ROLLBACK = "causal", "rollback"
RECOVERIES = (CAUSAL, ROLLBACK)
TASKS_MAX = 30
_PATHS_MAX = 6
_LANDMARKS = 0.3
"""How often sources without steps restart at a landmark although frames are retained."""
_LANDMARKS_US = (2_000, 8_000, 50_000)
"""A simulated job lasts for some 100 ms: with the interval of real jobs there are few landmarks in an epoch."""
_FED = 0.25
"""How often tasks feed their standbys, of the runs with full sharing depth."""
_FEED_US = (2_000, 8_000, 30_000)
_RECORDED = 0.2
"""The share of runs that record the logs of all tasks."""
_RECORD_US = (30_000, 300_000, 10_000_000)
"""Some checkpoints, more of them, and all of the run with few bases."""
_RECORD_BYTES = (1, 20_000, 200_000, 10_000_000)
"""Nothing before the newest base, a few intervals, and all of the run."""
_BY_SIZE = 0.4
"""The share of records that have a size instead of a time."""
_IN_PARTS = 0.7
"""How often a task begins with an operator whose state can be saved in parts, under a protocol that does so."""
_LOGGED = 0.2
"""The share of sources whose rows are logged."""
_STAGGERED = 0.4
"""The share of runs in which tasks that take snapshots alone are triggered after their receivers."""
_INTERVAL_US_MIN = 8_000
"""Writing a manifest takes some milliseconds: with a shorter interval, most snapshots would be superseded before a
manifest names them."""
_PATIENCE_US = (0, 0, 20_000, 2_000_000)
"""Half of them wait for nothing: many runs end before standbys start that wait."""
_EARLY = 0.35
"""The share of runs in which a task without work cuts frames early."""
_ROLLBACKS = 0.5
"""The share of jobs without logs that roll back; the others are at-least-once."""
FAULTS: Mapping[str, tuple[FaultKind, ...]] = {
    "kill": (
        FaultKind.KILL,
        FaultKind.KILL,
        FaultKind.KILL,
        FaultKind.KILL_AGAIN,
        FaultKind.KILL_RECOVERING,
        FaultKind.KILL_RECOVERING,
        FaultKind.KILL_MEANWHILE,
        FaultKind.KILL_MEANWHILE,
        FaultKind.KILL_NEIGHBOURS,
    ),
    "standby": (FaultKind.KILL_STANDBY,),
    "delay": (FaultKind.SLOW, FaultKind.HOLD_BACK),
    "partition": (FaultKind.CUT,),
    "zombie": (FaultKind.FREEZE,),
    "clock": (FaultKind.CLOCK,),
    "disk": (FaultKind.DISK,),
    "coordinator": (FaultKind.COORDINATOR, FaultKind.STAND_STILL),
    "crash": (FaultKind.CRASH,),
    "stop": (FaultKind.STOP,),
}
"""The kinds of faults, by their name on the command line. Kills are drawn as often as all others together, and
stops independently of the others."""
_GROUPS = (FaultKind.KILL_FINISHED, FaultKind.KILL_ALL_BUT_ONE)
FAMILY: Mapping[FaultKind, str] = {
    **dict.fromkeys([FaultKind.KILL_DESCENDANTS, *_GROUPS], "kill"),
    **{kind: name for name, kinds in FAULTS.items() for kind in kinds},
}
"""By kind: its name on the command line. Kinds that kill a certain group of tasks are drawn apart (``_with_group``)."""
_STOPS = 0.15
"""The share of runs in which the user stops the job once."""
_RESCALED = 0.5
"""The share of runs that go on at another parallelism after their first stop or loss, of those that can."""
_MORE_CHECKPOINTS = 2
"""So many times as many as in other runs, where each run is rescaled: one that is not the last may be loaded ahead."""
_DESCENDANTS = 0.1
"""The share of runs in which a task fails together with all tasks downstream of it."""
_GROUPS_KILLED = 0.1
"""The share of runs in which a finished task fails together with its receivers, or all tasks but one fail."""
_SILENT = 0.1
"""The share of runs in which all sources give nothing for a while before they end, with windows behind them."""
_SILENT_US, _SILENT_IDLE_US = 600_000, 3_000
_DRAWN_ELSEWHERE = (
    *RANKING, *LOOKING_UP, *JOINING, StepKind.TTL, StepKind.OTHER, StepKind.ROUTE, StepKind.WINDOWS, StepKind.SORT,
    StepKind.GATHER, StepKind.OVER, StepKind.GROUPS, StepKind.SHOWN,
)  # fmt: skip
"""Steps that only some vertices can have, or that take the place of others."""
_ALIGNED = 0.15
_ROWS_IN_STEP = 40
"""The most rows of sources that wait for each other with each row."""
_EXPIRING = 0.4
"""The share of running aggregates whose keys expire."""
_DISTINCT = 0.4
"""The share of the other running aggregates that are counts of distinct values."""
_WHOLE_WINDOWS = 0.4
"""The share of steps by key without an answer, or with that of the watermark, that take whole windows."""
_SHOWN_EARLY = 0.5
"""The share of these that show sessions before they end instead."""
_UNEVEN_ENDS = 0.25
"""The share of jobs with several sources in which one of them ends long after the others."""
_SLOW_STORAGE = 0.04
"""The share of runs in which storage takes many checkpoint intervals."""
_SLOW_STORAGE_FACTOR = 30.0
"""With it a write takes up to 0.6 s, less than a manifest may take (``scenario``)."""
_FOLLOWING = (FaultKind.KILL_AGAIN, FaultKind.KILL_RECOVERING, FaultKind.KILL_MEANWHILE)

_AFTER_LOSSES = (FaultKind.KILL, FaultKind.KILL_AGAIN, FaultKind.KILL_MEANWHILE, FaultKind.KILL_NEIGHBOURS)


@dataclass(frozen=True)
class Range:
    """The range of generated scenarios. ``sharing_depth`` None: any, drawn by the seed, full in half of the runs.
    ``protocol`` None: any, drawn by the seed. ``cycles``: each job has a loop. ``recovery`` CAUSAL: each job replays
    its determinants; ROLLBACK: each rolls back; None: either, or neither (at-least-once), drawn by the seed.
    ``time_granularity_us``: see ``Gate``; None: drawn by the seed. ``fed``: whether tasks feed their standbys; None:
    drawn by the seed. ``recorded``: whether logs are recorded; None: drawn by the seed. ``silent``: whether all
    sources are silent before they end; None: drawn by the seed. ``rescaled``: each run is stopped once, and goes on at
    another parallelism."""

    faults: tuple[str, ...] = tuple(FAULTS)
    sharing_depth: int | None = None
    tasks_max: int = TASKS_MAX
    faults_max: int = 6
    protocol: ProtocolProperties | None = DEFAULT_PROTOCOL
    cycles: bool = False
    recovery: str | None = None
    time_granularity_us: int | None = None
    fed: bool | None = None
    recorded: bool | None = None
    silent: bool | None = None
    rescaled: bool = False

    def __post_init__(self) -> None:
        """Raises SettingError if a fault or a recovery does not exist, or does not fit the depth."""
        if unknown := [name for name in self.faults if name not in FAULTS]:
            raise SettingError(f"there is no fault {unknown[0]!r}: choose from {', '.join(FAULTS)}")
        if self.recovery not in (None, *RECOVERIES):
            raise SettingError(f"there is no recovery {self.recovery!r}: choose from {', '.join(RECOVERIES)}")
        if self.protocol and not self.protocol.rolls_back and (self.recovery == ROLLBACK or self.sharing_depth == 0):
            raise SettingError(f"protocol {self.protocol} needs all determinants: it has causal recovery only")
        if self.recovery and self.sharing_depth is not None and (self.recovery == ROLLBACK) != (not self.sharing_depth):
            raise SettingError(
                f"{self.recovery} recovery does not go with sharing depth {self.sharing_depth}: rollback recovery has "
                "sharing depth 0, causal recovery any other"
            )


@dataclass(frozen=True)
class Conditions:
    """The conditions of a run, apart from its faults. ``slowness``: by kind of action, the factor on its typical
    delay."""

    window: int
    checkpoint_interval_us: int
    linger_us: int
    slowness: tuple[tuple[str, float], ...]
    spill: Spill
    standbys_per_process: int = 1
    availability: bool = False
    """Whether a task whose determinants are lost restarts, instead of the whole job."""
    queue_us: int = 500_000
    """The time that rows should wait in a channel, if the size of frames adapts to the cost of rows."""
    staggered: bool = False
    """Whether tasks that take snapshots alone are triggered after their receivers; otherwise at independent times."""
    standby_patience_us: int = 0
    """How long standbys that are to be started wait for a deployment or a recovery; 0: not at all."""
    cuts_early: bool = False
    """Whether pending rows of a task that has nothing else to do leave before the linger time is over."""
    rescales: bool = False
    """Whether the run goes on at another parallelism once it was stopped or lost."""


@dataclass(frozen=True)
class Scenario:
    """Everything that a run depends on. ``seed`` decides delays and answers."""

    seed: int
    topology: Topology
    conditions: Conditions
    faults: tuple[Fault, ...]


def generate(seed: int, range_: Range = Range()) -> Scenario:
    random_ = random.Random(seed)
    topology, protocol = _topology(random_, range_), _protocol(seed, range_)
    if not protocol.coordinated:
        topology = replace(topology, sharing_depth=_alone_depth(seed, range_) if protocol.rolls_back else -1)
    if range_.cycles:
        topology = replace(topology, sharing_depth=0 if topology.sharing_depth == 0 else -1)
        topology = with_loop(random.Random(f"loop of {seed}"), topology)
    standbys, availability = _standbys_per_process(seed), topology.sharing_depth > 0 and random_.random() < 0.5
    adaptive, queue_us = _adaptive(seed)
    conditions = replace(
        _conditions(random_),
        standbys_per_process=standbys,
        availability=availability,
        queue_us=queue_us,
        staggered=random.Random(f"calls of {seed}").random() < _STAGGERED,
        standby_patience_us=random.Random(f"patience of {seed}").choice(_PATIENCE_US),
        cuts_early=random.Random(f"cuts of {seed}").random() < _EARLY,
    )
    granularity_us = random_.choice([0, 0, 300, 3_000])
    if range_.time_granularity_us is not None:
        granularity_us = range_.time_granularity_us
    resumes = random.Random(f"landmarks of {seed}").random() < _LANDMARKS
    regenerates = resumes or conditions.spill is Spill.REGENERATE
    topology = replace(
        topology,
        regenerates=regenerates,
        landmark_interval_us=random.Random(f"landmark interval of {seed}").choice(_LANDMARKS_US),
        time_granularity_us=granularity_us,
        adaptive=adaptive,
        protocol=protocol,
    )
    if topology.sharing_depth == 0:
        drawn = random.Random(f"rollback of {seed}").random() < _ROLLBACKS
        topology = replace(topology, rollback=not protocol.coordinated or range_.recovery == ROLLBACK or drawn)
    if topology.sharing_depth < 0 and protocol.coordinated:
        topology = _with_causal_sinks(random.Random(~seed), topology)
    topology = _with_logged_rows(random.Random(f"rows of {seed}"), topology)
    topology = _with_feed(random.Random(f"feed of {seed}"), range_, topology)
    topology = _with_record(random.Random(f"record of {seed}"), range_, topology)
    if protocol.partwise:
        topology = _with_parts(random.Random(f"parts of {seed}"), topology)
    faults = _losses(random.Random(f"losses of {seed}"), range_) if availability else ()
    faults = faults or _faults(random_, range_)
    if topology.rollback and not protocol.coordinated:
        faults += _faults(random.Random(f"more of {seed}"), range_)  # the recovery line is tested by several rollbacks
        topology, conditions = _with_lines(random.Random(f"lines of {seed}"), topology, conditions)
    if "kill" in range_.faults:
        faults = _with_group(
            random.Random(f"descendants of {seed}"), faults, (FaultKind.KILL_DESCENDANTS,), _DESCENDANTS
        )
        faults = _with_group(random.Random(f"groups of {seed}"), faults, _GROUPS, _GROUPS_KILLED)
    conditions = _with_slow_storage(random.Random(f"storage of {seed}"), conditions)
    topology = _with_uneven_ends(random.Random(f"ends of {seed}"), topology)
    if "stop" in range_.faults:
        faults = _with_stop(random.Random(f"stop of {seed}"), faults, 1 if range_.rescaled else _STOPS)
    if range_.rescaled:
        nodes = tuple(replace(node, causal=False) for node in topology.nodes)
        topology = replace(topology, nodes=nodes, record=NO_RECORD)
        interval_us = max(conditions.checkpoint_interval_us // _MORE_CHECKPOINTS, _INTERVAL_US_MIN)
        conditions = replace(conditions, checkpoint_interval_us=interval_us)
    rescales = range_.rescaled or random.Random(f"tasks of {seed}").random() < _RESCALED
    conditions = replace(conditions, rescales=rescales)
    topology, faults = _with_silence(random.Random(f"silence of {seed}"), range_, topology, faults)
    topology = _with_verbs(random.Random(f"verbs of {seed}"), topology, keeps_rows=not range_.cycles)
    if not range_.cycles:
        topology = _with_tables(random.Random(f"tables of {seed}"), topology)
        topology = _with_windows_by_key(random.Random(f"windows of {seed}"), topology)
        topology = _with_sessions_shown(random.Random(f"sessions of {seed}"), topology)
    topology = _with_alignment(random.Random(f"ahead of {seed}"), topology)
    return Scenario(seed, topology, conditions, faults)


def _alone_depth(seed: int, range_: Range) -> int:
    """The sharing depth for snapshots that tasks take alone: full, or 0 (no determinants)."""
    drawn = random.Random(f"depth of {seed}").choice([-1, 0]) if range_.sharing_depth is None else range_.sharing_depth
    return 0 if _recovering(drawn, range_) == 0 else -1


# ---- topologies


def _with_feed(random_: random.Random, range_: Range, topology: Topology) -> Topology:
    """Feeds standbys in a share of the runs that log all determinants."""
    fed = random_.random() < _FED if range_.fed is None else range_.fed
    if not fed or topology.sharing_depth >= 0:
        return topology
    return replace(topology, standby_feed_us=random_.choice(_FEED_US))


def _with_record(random_: random.Random, range_: Range, topology: Topology) -> Topology:
    """Records the logs of all tasks in a share of the runs, for some time or up to some size."""
    recorded, limit = random_.random() < _RECORDED, RecordLimit(random_.choice(_RECORD_US))
    if random_.random() < _BY_SIZE:
        limit = RecordLimit(size_bytes=random_.choice(_RECORD_BYTES))
    if range_.recorded is not None:
        recorded = range_.recorded
    return replace(topology, record=limit) if recorded else topology


def _with_parts(random_: random.Random, topology: Topology) -> Topology:
    """Lets most tasks begin with an operator whose state is saved in parts, and draws when parts are saved again."""

    def node(found: SimulatedVertex) -> SimulatedVertex:
        if not found.feeds or found.feedback is not None or not found.steps or random_.random() >= _IN_PARTS:
            return found
        feeds = tuple(replace(feed, partitioning=Partitioning.HASH) for feed in found.feeds)
        return replace(found, feeds=feeds, steps=(StepKind.PARTS, *found.steps[1:]))

    policy = FootprintPolicy(
        extent_max=random_.choice([0, 1, 4, 10]),
        replay_max=random_.choice([0, 3, 10]),
        check_us=random_.choice([0, 100, 1_000]),
        period_us=random_.choice([1_000, 10_000]),
        failure_us=random_.choice([1_000, 1_000_000]),
    )
    return replace(topology, nodes=tuple(map(node, topology.nodes)), footprints=policy)


def _topology(random_: random.Random, range_: Range) -> Topology:
    """Draws a topology, mostly a small one: it has all orders of events that matter, and more runs fit in a second."""
    while True:
        inputs = _shape(random_)
        most = random_.choice([1, 2, 2, 3])
        nodes: list[SimulatedVertex] = []
        for sources in inputs:
            nodes.append(_node(random_, nodes, sources, most))
        topology = Topology(tuple(nodes), _depth(random_, range_))
        few_paths = all(len(paths) <= _PATHS_MAX for paths in topology.paths.values())
        if topology.tasks <= range_.tasks_max and few_paths:
            return topology


def _with_causal_sinks(random_: random.Random, topology: Topology) -> Topology:
    """Makes some or all sinks causal, in a third of the runs."""
    share = random_.choice([0.0, 0.0, 0.0, 0.0, 0.5, 1.0])
    return replace(topology, nodes=tuple(replace(node, causal=random_.random() < share) for node in topology.nodes))


def _with_logged_rows(random_: random.Random, topology: Topology) -> Topology:
    """Makes some sources log their rows."""
    nodes = [
        replace(node, volume=replace(node.volume, logged=random_.random() < _LOGGED)) if node.volume else node
        for node in topology.nodes
    ]
    return replace(topology, nodes=tuple(nodes))


def _depth(random_: random.Random, range_: Range) -> int:
    any_ = [0, 1, 1, 2, 3, -1, -1, -1, -1, -1]
    return _recovering(random_.choice(any_) if range_.sharing_depth is None else range_.sharing_depth, range_)


def _recovering(depth: int, range_: Range) -> int:
    """``depth`` if the requested recovery allows it, else a depth that it allows."""
    if range_.recovery == ROLLBACK:
        return 0
    return depth or -1 if range_.recovery == CAUSAL else depth


def _shape(random_: random.Random) -> list[tuple[int, ...]]:
    """Draws a graph. By node: the nodes that feed it."""
    match random_.choice(["chain", "fork", "fork", "diamond", "join", "join", "free"]):
        case "chain":
            return [(n - 1,) if n else () for n in range(random_.randint(2, 5))]
        case "fork":
            return [(), (0,), (1,), (1,)]
        case "diamond":
            return [(), (0,), (0,), (1, 2), *random_.choice([[], [(3,)], [(3,), (3,)]])]
        case "join":
            return [(), (), (0, 1), *random_.choice([[], [(2,)], [(2,), (2,)]])]
        case _:
            return _free_shape(random_, sources=random_.randint(1, 3), others=random_.randint(2, 8))


def _free_shape(random_: random.Random, sources: int, others: int) -> list[tuple[int, ...]]:
    inputs: list[tuple[int, ...]] = [()] * sources
    for number in range(sources, sources + others):
        unfed = [n for n in range(number) if all(n not in feeds for feeds in inputs)]
        chosen = {random_.choice(unfed) if unfed and random_.random() < 0.7 else random_.randrange(number)}
        if random_.random() < 0.4:
            chosen.add(random_.randrange(number))
        inputs.append(tuple(sorted(chosen)))
    return inputs


def _node(
    random_: random.Random, before: list[SimulatedVertex], sources: tuple[int, ...], most: int
) -> SimulatedVertex:
    standbys = random_.choice([1, 1, 1, 1, 0, 2])
    if not sources:
        parallelism = random_.randint(1, most)
        asked = random_.choice([StepKind.RANDOM, StepKind.CLOCK])
        some = (asked,) if random_.random() < 0.3 else ()
        return SimulatedVertex(parallelism, (), some, _volume(random_), random_.random() < 0.1, standbys)
    # mostly the parallelism of its input: only then may an edge be FORWARD
    parallelism = before[sources[0]].parallelism if random_.random() < 0.6 else random_.randint(1, most)
    feeds = tuple(_feed(random_, n, before[n].parallelism == parallelism) for n in sources)
    steps = tuple(_step(random_, feeds, first=i == 0) for i in range(random_.choice([1, 1, 1, 2])))
    if len(steps) > 1 and random_.random() < 0.2:
        steps = (StepKind.TIMERS,) * len(steps)
    return SimulatedVertex(parallelism, feeds, steps, None, random_.random() < 0.15, standbys)


def _volume(random_: random.Random) -> Volume:
    return Volume(
        rows=random_.choice([8, 16, 24, 40]),
        partitions=random_.choice([1, 2, 4]),
        batch=random_.choice([1, 2, 4]),
        pause_us=random_.choice([500, 2_000, 5_000]),
        idle_us=random_.choice([None, 3_000]),
        burst=random_.choice([1, 1, 3]),
        in_turn=random_.random() < 0.3,
        nap_us=random_.choice([0, 8_000]),
    )


def _feed(random_: random.Random, source: int, equal: bool) -> InputEdge:
    choices = [Partitioning.HASH, Partitioning.REBALANCE]
    partitioning = random_.choice([*choices, Partitioning.FORWARD] if equal else choices)
    frame_rows = random_.choice([1, 2, 4, 8])
    return InputEdge(source, partitioning, frame_rows, random_.choice([0, frame_rows, 4 * frame_rows]))


def _step(random_: random.Random, feeds: tuple[InputEdge, ...], first: bool) -> StepKind:
    kinds = [kind for kind in StepKind if kind not in _DRAWN_ELSEWHERE]
    if all(feed.partitioning is Partitioning.HASH for feed in feeds):
        kinds.append(StepKind.RANK)
    if first and len(feeds) > 1:
        kinds += [StepKind.OTHER] * 4
    return random_.choice(kinds)


# ---- conditions and faults


def _conditions(random_: random.Random) -> Conditions:
    kinds = random_.sample(["network", "queue", "control", "disk", "start", "step", "detect"], 3)
    return Conditions(
        window=random_.choice([1, 2, 4, 16]),
        checkpoint_interval_us=random_.choice([8_000, 25_000, 25_000, 100_000]),
        linger_us=random_.choice([500, 2_000, 2_000, 20_000]),
        slowness=tuple((kind, random_.choice([0.1, 0.3, 1.0, 3.0, 8.0])) for kind in sorted(kinds)),
        spill=random_.choice([Spill.IN_MEMORY, *Spill]),
    )


def _with_slow_storage(random_: random.Random, conditions: Conditions) -> Conditions:
    """In some runs snapshots become durable long after the next ones are due."""
    if random_.random() >= _SLOW_STORAGE:
        return conditions
    slowness = {**dict(conditions.slowness), "disk": _SLOW_STORAGE_FACTOR}
    return replace(conditions, slowness=tuple(sorted(slowness.items())))


def _standbys_per_process(seed: int) -> int:
    """Drawn from a separate generator, so that the other draws of a seed do not depend on it."""
    return random.Random(f"standbys of {seed}").choice([1, 1, 2, 4])


def _protocol(seed: int, range_: Range) -> ProtocolProperties:
    """Where jobs roll back, only a protocol that can."""
    drawn = range_.protocol or random.Random(f"protocol of {seed}").choice(PROTOCOLS)
    rolls_back = range_.recovery == ROLLBACK or range_.sharing_depth == 0
    if range_.protocol is None and rolls_back and not drawn.rolls_back:
        return DEFAULT_PROTOCOL
    return drawn


def _adaptive(seed: int) -> tuple[bool, int]:
    """Whether the size of reads and frames adapts to the cost of rows, and the target time in a channel."""
    random_ = random.Random(f"frames of {seed}")
    return random_.random() < 0.4, random_.choice([500, 10_000, 100_000, 500_000])


def _faults(random_: random.Random, range_: Range) -> tuple[Fault, ...]:
    names = [name for name in range_.faults if name != "stop"]
    if not names:
        return ()
    moments = sorted(random_.random() * 1.1 for _ in range(random_.randint(1, range_.faults_max)))
    faults: list[Fault] = []
    for at in moments:
        name = "kill" if "kill" in names and random_.random() < 0.5 else random_.choice(names)
        kind = random_.choice(FAULTS[name])
        follows = kind in _FOLLOWING and faults
        after = random_.randrange(60 if follows else 200)
        faults.append(Fault(kind, faults[-1].at if follows else at, after, random_.getrandbits(32)))
    return tuple(faults)


def _with_group(
    random_: random.Random, faults: tuple[Fault, ...], kinds: Sequence[FaultKind], share: float
) -> tuple[Fault, ...]:
    """In a share of the runs, one of the faults is one of these kinds instead."""
    if not faults or random_.random() >= share:
        return faults
    position = random_.randrange(len(faults))
    fault = replace(faults[position], kind=random_.choice(kinds))
    return (*faults[:position], fault, *faults[position + 1 :])


def _with_silence(
    random_: random.Random, range_: Range, topology: Topology, faults: tuple[Fault, ...]
) -> tuple[Topology, tuple[Fault, ...]]:
    """In some runs, all sources fall silent at about the same time, with windows behind them, and end later. In half of
    these the user stops the job meanwhile: then they are silent in the run that resumes, too. Not with loops, in which
    rows may not be emitted at the end."""
    silent = random_.random() < _SILENT if range_.silent is None else range_.silent
    if not silent or range_.cycles:
        return topology, faults
    volume = next(node.volume for node in topology.nodes if node.volume is not None)
    alike = replace(volume, idle_us=_SILENT_IDLE_US, silent_us=_SILENT_US, in_turn=False)
    nodes = tuple(
        replace(node, volume=replace(alike, logged=node.volume.logged))
        if node.volume is not None
        else replace(node, steps=_with_windows(random_, node))
        for node in topology.nodes
    )
    if "stop" in range_.faults and random_.random() < 0.5:
        faults = (*faults, Fault(FaultKind.STOP, 1.0, random_.randrange(400), 0))
    return replace(topology, nodes=nodes), faults


def _with_windows(random_: random.Random, node: SimulatedVertex) -> tuple[StepKind, ...]:
    """The last step, or none, keeps rows until the watermark instead."""
    steps = node.steps
    if steps[-1] is StepKind.PARTS:
        return steps
    drawn = random_.random()
    by_key = all(feed.partitioning is Partitioning.HASH for feed in node.feeds)
    if drawn < 0.7:
        return (*steps[:-1], StepKind.OVER if by_key and drawn < 0.35 else StepKind.WINDOWS)
    return steps


def _with_verbs(random_: random.Random, topology: Topology, keeps_rows: bool) -> Topology:
    """Where a task gets all rows of a key, half of the counts by key, and of the first steps without an answer, are
    running aggregates of the engine, and half of the first steps that answer the watermark sort by time. Half of the
    random numbers are drawn for several rows that are gathered. ``keeps_rows``: whether steps may keep rows to the end
    of the input, which none may in a loop."""

    def drawn(node: SimulatedVertex) -> SimulatedVertex:
        by_key = bool(node.feeds) and all(feed.partitioning is Partitioning.HASH for feed in node.inputs)
        first = {StepKind.PLAIN: StepKind.REDUCE} if by_key else {}
        alike = {StepKind.RANK: StepKind.REDUCE}
        if keeps_rows and by_key:
            first[StepKind.WATERMARK] = StepKind.SORT
        if keeps_rows and node.feeds and StepKind.TIMERS not in node.steps:
            alike[StepKind.RANDOM] = StepKind.GATHER  # it checks timers when rows come, not when others fire
        steps = [
            ({**alike, **first} if place == 0 else alike).get(kind, kind) if random_.random() < 0.5 else kind
            for place, kind in enumerate(node.steps)
        ]
        return replace(node, steps=tuple(steps))

    return replace(topology, nodes=tuple(map(drawn, topology.nodes)))


def _with_tables(random_: random.Random, topology: Topology) -> Topology:
    """Half of the steps that answer what came from the other input look it up in a table that this input makes. Some
    counts by key are those of a table whose keys expire."""

    def drawn(node: SimulatedVertex) -> SimulatedVertex:
        first, looking_up = node.steps[0] if node.feeds else None, random_.choice([None, None, *LOOKING_UP])
        if first is StepKind.OTHER and looking_up:
            feeds = tuple(replace(feed, partitioning=Partitioning.HASH) for feed in node.feeds)
            return replace(node, feeds=feeds, steps=(looking_up, *node.steps[1:]))
        if first is StepKind.REDUCE and random_.random() < _EXPIRING:
            return replace(node, steps=(StepKind.TTL, *node.steps[1:]))
        return node

    return replace(topology, nodes=tuple(map(drawn, topology.nodes)))


def _with_windows_by_key(random_: random.Random, topology: Topology) -> Topology:
    """Half of the steps that still answer what came from the other input join it by event time. Some counts by key are
    those of distinct values, and some other steps by key take whole windows."""

    def drawn(node: SimulatedVertex) -> SimulatedVertex:
        if not node.feeds:
            return node
        first, joining = node.steps[0], random_.choice([None, None, *JOINING])
        distinct, whole = random_.random() < _DISTINCT, random_.random() < _WHOLE_WINDOWS
        if first is StepKind.OTHER and joining:
            feeds = tuple(replace(feed, partitioning=Partitioning.HASH) for feed in node.feeds)
            return replace(node, feeds=feeds, steps=(joining, *node.steps[1:]))
        if first is StepKind.REDUCE and distinct:
            return replace(node, steps=(StepKind.DISTINCT, *node.steps[1:]))
        by_key = all(feed.partitioning is Partitioning.HASH for feed in node.feeds)
        if first in (StepKind.PLAIN, StepKind.WATERMARK) and by_key and whole:
            return replace(node, steps=(StepKind.GROUPS, *node.steps[1:]))
        return node

    return replace(topology, nodes=tuple(map(drawn, topology.nodes)))


def _with_sessions_shown(random_: random.Random, topology: Topology) -> Topology:
    """Some steps that take whole windows show sessions before they end instead."""

    def drawn(node: SimulatedVertex) -> SimulatedVertex:
        shown = random_.random() < _SHOWN_EARLY
        if not shown or not node.steps or node.steps[0] is not StepKind.GROUPS:
            return node
        return replace(node, steps=(StepKind.SHOWN, *node.steps[1:]))

    return replace(topology, nodes=tuple(map(drawn, topology.nodes)))


def _with_alignment(random_: random.Random, topology: Topology) -> Topology:
    """In some runs sources wait for slower ones. The ids of different sources, their event times, are far apart. Not
    for each single row, if there are many: the coordinator lets sources go on 50 times a second."""
    if random_.random() >= _ALIGNED:
        return topology
    ahead_us = random_.choice([0, 8, 10_000])
    many = max(topology.rows_of.values()) > _ROWS_IN_STEP
    return replace(topology, ahead_us=8 if many and not ahead_us else ahead_us)


def _with_uneven_ends(random_: random.Random, topology: Topology) -> Topology:
    """In some runs, one of several sources ends long after the others: tasks that have finished fail, too."""
    sources = [number for number, node in enumerate(topology.nodes) if node.volume]
    if len(sources) < 2 or random_.random() >= _UNEVEN_ENDS:
        return topology
    last = random_.choice(sources)
    nodes = tuple(
        replace(node, volume=node.volume and replace(node.volume, rows=4 if number != last else 4 * node.volume.rows))
        for number, node in enumerate(topology.nodes)
    )
    return replace(topology, nodes=nodes)


def _with_stop(random_: random.Random, faults: tuple[Fault, ...], share: float) -> tuple[Fault, ...]:
    """Adds a stop in a share of the runs: before, between or after the others, sometimes during a recovery."""
    if random_.random() >= share:
        return faults
    position = random_.randint(0, len(faults))
    at = faults[position - 1].at if position else random_.random()
    stop = Fault(FaultKind.STOP, at, random_.randrange(random_.choice([60, 200])), 0)
    return (*faults[:position], stop, *faults[position:])


def _with_lines(random_: random.Random, topology: Topology, conditions: Conditions) -> tuple[Topology, Conditions]:
    """Mostly more snapshots, sometimes more rows: otherwise tasks seldom have more snapshots than the line needs."""
    interval_us = max(conditions.checkpoint_interval_us // random_.choice([1, 2, 4]), _INTERVAL_US_MIN)
    times = random_.choice([1, 1, 2])
    nodes = tuple(
        replace(node, volume=node.volume and replace(node.volume, rows=node.volume.rows * times))
        for node in topology.nodes
    )
    return replace(topology, nodes=nodes), replace(conditions, checkpoint_interval_us=interval_us)


def _losses(random_: random.Random, range_: Range) -> tuple[Fault, ...]:
    """Faults for a third of the runs: consecutive tasks are lost, so that some restart without log; then the
    coordinator, which holds the record of these restarts; then another task. Empty unless all of these faults are
    allowed."""
    if not {"kill", "coordinator"}.issubset(range_.faults) or random_.random() < 2 / 3:
        return ()
    kinds = (FaultKind.KILL_NEIGHBOURS, FaultKind.COORDINATOR, random_.choice(_AFTER_LOSSES))
    at = random_.random()
    return tuple(Fault(kind, at, random_.choice([20, 60, 200]), random_.getrandbits(32)) for kind in kinds)
