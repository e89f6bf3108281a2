"""``python -m clonos_py.bench``: measures this machine and prints the figures, of all scripts or of one.

Some scripts run only when their name is given. ``digests`` and ``soak`` print no figures: ``digests`` compares the
results of the queries on every driver, and ``soak`` checks the output of jobs after hundreds of failures. ``memory``
and ``state`` need gigabytes, ``peers`` installs other engines, ``limit`` is for a machine that
does nothing else, ``kafka`` starts brokers, ``postgres`` a database, and
``checkmate`` takes days. ``prices`` fits the costs of the simulated cluster. ``cec`` measures continuous eventual
checkpoints, ``interval`` checkpoint intervals, and ``rescale`` how long a change of the parallelism pauses a run."""

from __future__ import annotations

import sys

import click

from clonos_py.bench import (
    cec,
    determinants,
    digests,
    generation,
    interval,
    kernels,
    latency,
    memory,
    overhead,
    prices,
    recovery,
    rescale,
    sinks,
    soak,
    speed,
    stamps,
    start,
    state,
)
from clonos_py.bench.checkmate import command as checkmate
from clonos_py.bench.kafka import command as kafka
from clonos_py.bench.limit import command as limit
from clonos_py.bench.peers import command as peers
from clonos_py.bench.postgres import command as postgres
from clonos_py.cli.endings import ended

_SCRIPTS = (
    generation.command,
    speed.command,
    latency.command,
    overhead.command,
    determinants.command,
    recovery.command,
    sinks.command,
    stamps.command,
    start.command,
)
_BY_NAME = (
    cec.command,
    checkmate.command,
    digests.command,
    interval.command,
    kernels.command,
    kafka.command,
    limit.command,
    memory.command,
    peers.command,
    postgres.command,
    prices.command,
    rescale.command,
    soak.command,
    state.command,
)


@click.group(invoke_without_command=True, commands=(*_SCRIPTS, *_BY_NAME))
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Throughput, latency, overhead, determinants, stamps and recovery of Nexmark queries, the generator, and sinks."""
    if ctx.invoked_subcommand is None:
        for script in _SCRIPTS:
            click.echo(f"{script.name}: {script.help}")
            script.main([], standalone_mode=False)


if __name__ == "__main__":
    sys.exit(ended(bench, sys.argv[1:], "python -m clonos_py.bench"))
