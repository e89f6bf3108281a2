"""``clonos nexmark generate``, ``verify`` and ``prove``: commands on Spark, which need ``clonos-py[spark]``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from clonos_py.cli.counts import Count, words
from clonos_py.cli.nexmark_options import EventsParam, events_options, model_of
from clonos_py.cli.options import resolved, setting_options

_PARTITIONS = 8
_EXIT_DIFFERENT = 1


def _seed() -> click.Option:
    return click.Option(["--seed"], type=click.IntRange(0), default=1, show_default=True, help="Seed of the events.")


def _master() -> click.Option:
    return click.Option(
        ["--master"], metavar="URL", help="Spark's master, whose workers have clonos-py; by default this machine."
    )


def _source(events: int, partitions: int, given: dict[str, Any]) -> Any:
    from clonos_py.evaluation.nexmark.source import NexmarkSource

    return NexmarkSource(
        events=events, event_rate=given["event_rate"], seed=given["seed"], partitions=partitions, model=model_of(given)
    )


def _generate(events: int, out: str, partitions: int, master: str | None, **given: Any) -> None:
    """The body of ``generate``."""
    from clonos_py.evaluation.spark.generate import check_target, generate

    source, target = _source(events, partitions, given), check_target(out)
    generate(source, target, master)
    counts = zip(source.generator.counts(events), ("people", "auctions", "bids"), strict=True)
    click.echo(f"{target}: {', '.join(f'{count:,} {kind}' for count, kind in counts)}")


def _verify(query: str, events: int | Path, results: Path, master: str | None, **given: Any) -> int:
    """The body of ``verify``. The exit code is 0 if the results are right."""
    from clonos_py.evaluation.spark.verify import verify

    source = events if isinstance(events, Path) else _source(events, _PARTITIONS, given)
    comparison = verify(query, source, results, master)
    for line in comparison.lines(query):
        click.echo(line)
    return 0 if comparison.identical else _EXIT_DIFFERENT


def _prove(queries: tuple[str, ...], seeds: list[str], parallelisms: list[str], events: int, **given: Any) -> int:
    """The body of ``prove``."""
    from clonos_py.evaluation.nexmark.jobs import QUERIES
    from clonos_py.evaluation.spark.proof import prove, trials

    source = replace(_source(events, _PARTITIONS, {**given, "seed": 1}), rate=given["rate"])
    chosen = list(trials(queries or QUERIES, _whole(seeds), _whole(parallelisms)))
    wrong = 0
    for number, (trial, verdict) in enumerate(prove(chosen, source, resolved({}, given), given["master"]), 1):
        first, *more = verdict.lines
        click.echo("\n".join([f"{number}/{len(chosen)}  {trial} {first}", *more]))
        wrong += not verdict.right
    click.echo(f"{len(chosen) - wrong} of {len(chosen)} runs are right")
    return _EXIT_DIFFERENT if wrong else 0


def _whole(numbers: list[str]) -> list[int]:
    if not all(number.isdigit() for number in numbers):
        raise click.BadParameter(f"{','.join(numbers)} are not whole numbers")
    return [int(number) for number in numbers]


generate_command = click.Command(
    "generate",
    callback=_generate,
    params=[
        click.Option(["--events"], type=Count(), default="10M", show_default=True, help="How many events."),
        click.Option(["--out"], required=True, metavar="DIR", help="A new folder for them, or topics: kafka://HOST:PORT/PREFIX."),
        click.Option(
            ["--partitions"], type=click.IntRange(1), default=_PARTITIONS, show_default=True,
            help="Files of each kind of event; as many tasks can replay them.",
        ),
        _master(),
        _seed(),
        *events_options(),
    ],
    help="""Writes events as Parquet files, through Spark; or to Kafka, as JSON, a topic of each kind.

    \b
    Examples:
      clonos nexmark generate --events 10M --out events/
      clonos nexmark generate --events 1G --out /shared/events --partitions 64 --master spark://head:7077
      clonos nexmark generate --events 10M --out kafka://localhost:9092/nexmark
      clonos nexmark generate --events 1M --out skewed --skew 0.3 --out-of-order-group 1000
    """,
)  # fmt: skip

verify_command = click.Command(
    "verify",
    callback=_verify,
    params=[
        click.Argument(["query"]),
        click.Option(
            ["--events"], type=EventsParam(), required=True,
            help="The folder of events that the query ran over, or their number.",
        ),
        click.Option(
            ["--results"], type=click.Path(path_type=Path), required=True, metavar="DIR",
            help="What the query wrote with --sink files --out DIR.",
        ),
        _master(),
        _seed(),
        *events_options(),
    ],
    help="""Compares the results of QUERY (q0 to q22) with what Spark answers over the same events.

    Exits with 1 if they differ and shows the first rows that only one side has. Options of the events apply only if
    --events is a number; a folder records its own.

    \b
    Examples:
      clonos nexmark run q8 --events-from events/ --sink files --out results
      clonos nexmark verify q8 --events events/ --results results
      clonos nexmark verify q8 --events 5M --seed 7 --results results
    """,
)  # fmt: skip

prove_command = click.Command(
    "prove",
    callback=_prove,
    params=[
        click.Argument(["queries"], nargs=-1),
        click.Option(["--events"], type=Count(), default="1M", show_default=True, help="How many events."),
        click.Option(
            ["--rate"], type=Count(), default="200k", show_default=True,
            help="Events per second of the runs in which a task is killed half-way.",
        ),
        words("--seeds", "seeds", "1,2,3", "Seeds of the events."),
        words("--parallelisms", "parallelisms", "1,2", "Tasks per operator."),
        _master(),
        *events_options(event_rate=10_000, out_of_order_group=100),
        *setting_options("runtime", "address", "checkpoint_interval"),
    ],
    help="""Runs QUERIES (by default all) and verifies each result against Spark, with no task killed and with a task
    killed half-way, over events that are out of order.

    \b
    Examples:
      clonos nexmark prove
      clonos nexmark prove q3 q8 --events 100k --seeds 7 --runtime local
    """,
)  # fmt: skip
