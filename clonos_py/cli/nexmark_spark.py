"""``clonos nexmark generate`` and ``verify``: what runs on Spark, with the extra ``clonos-py[spark]`` and Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clonos_py.cli.counts import Count
from clonos_py.cli.nexmark_options import Events, events_options, model_of

_PARTITIONS = 8
_EXIT_DIFFERENT = 1


def _seed() -> click.Option:
    return click.Option(["--seed"], type=click.IntRange(0), default=1, show_default=True, help="Of the events.")


def _master() -> click.Option:
    return click.Option(
        ["--master"], metavar="URL", help="Spark's master, whose workers have clonos-py; this machine without."
    )


def _source(events: int, partitions: int, given: dict[str, Any]) -> Any:
    from clonos_py.bench.nexmark.source import NexmarkSource

    return NexmarkSource(
        events=events, event_rate=given["event_rate"], seed=given["seed"], partitions=partitions, model=model_of(given)
    )


def _generate(events: int, out: str, partitions: int, master: str | None, **given: Any) -> None:
    """The body of ``generate``."""
    from clonos_py.spark.generate import check_target, generate

    source, folder = _source(events, partitions, given), check_target(out)
    generate(source, folder, master)
    counts = zip(source.generator.counts(events), ("people", "auctions", "bids"), strict=True)
    click.echo(f"{folder}: {', '.join(f'{count:,} {kind}' for count, kind in counts)}")


def _verify(query: str, events: int | Path, results: Path, master: str | None, **given: Any) -> int:
    """The body of ``verify``; its exit code tells whether the results are right."""
    from clonos_py.spark.verify import verify

    source = events if isinstance(events, Path) else _source(events, _PARTITIONS, given)
    comparison = verify(query, source, results, master)
    for line in comparison.lines(query):
        click.echo(line)
    return 0 if comparison.identical else _EXIT_DIFFERENT


generate_command = click.Command(
    "generate",
    callback=_generate,
    params=[
        click.Option(["--events"], type=Count(), default="10M", show_default=True, help="How many events."),
        click.Option(["--out"], required=True, metavar="DIR", help="A new folder for them."),
        click.Option(
            ["--partitions"], type=click.IntRange(1), default=_PARTITIONS, show_default=True,
            help="Files of each kind of event; as many tasks can replay them.",
        ),
        _master(),
        _seed(),
        *events_options(),
    ],
    help="""Writes events as Parquet files, through Spark.

    \b
    Examples:
      clonos nexmark generate --events 10M --out events/
      clonos nexmark generate --events 1G --out /shared/events --partitions 64 --master spark://head:7077
      clonos nexmark generate --events 1M --out skewed --skew 0.3 --out-of-order-group 1000
    """,
)  # fmt: skip

verify_command = click.Command(
    "verify",
    callback=_verify,
    params=[
        click.Argument(["query"]),
        click.Option(
            ["--events"], type=Events(), required=True,
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

    Exits with 1 if they differ and shows the first rows that only one side has. Options of the events count only where
    --events is a number; a folder knows what it holds.

    \b
    Examples:
      clonos nexmark run q8 --events-from events/ --sink files --out results
      clonos nexmark verify q8 --events events/ --results results
      clonos nexmark verify q8 --events 5M --seed 7 --results results
    """,
)  # fmt: skip
