"""``clonos interval``: the checkpoint interval with the highest utilization."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from clonos_py.cli.options import file_in_a_folder, resolved, setting_options
from clonos_py.cli.quantities import BytesPerSecond, DurationParam, Factor, FailureRate
from clonos_py.cli.result_files import write_result
from clonos_py.model.errors import SettingError

if TYPE_CHECKING:
    from clonos_py.checkpoint.interval import IntervalModel, Rollbacks
    from clonos_py.evaluation.intervals.figures import IntervalRow
    from clonos_py.evaluation.intervals.measured import MeasuredRun

_PATH = click.Path(path_type=Path)
_DURATION = DurationParam()


def interval(svg: Path | None, as_json: bool, **given: Any) -> None:
    """The body of the command."""
    from clonos_py.evaluation.intervals.figures import interval_rows, plain, plot

    run = _measured(given["run"])
    model = _model(given, run)
    rows = interval_rows(model, _own_s(model, given["interval"], run))
    if svg is not None:
        write_result(svg, plot(model, rows))
    if as_json:
        click.echo(json.dumps(plain(model, rows), indent=2))
        return
    if run is not None:
        click.echo(_taken(given["run"], run))
    _print(rows, given["data_rate"], model)
    if given["data_rate"] is not None:
        _print_budget(rows, given, model)
    if svg is not None:
        click.echo(f"the plot is {svg}")


# ---- what is given, and what a run says


def _measured(path: Path | None) -> MeasuredRun | None:
    if path is None:
        return None
    from clonos_py.evaluation.intervals.measured import measured

    try:
        return measured(path)
    except SettingError as error:
        _wrong("--from", str(error))


def _model(given: Mapping[str, Any], run: MeasuredRun | None) -> IntervalModel:
    """The model of the options; what they leave out is that of the run."""
    from clonos_py.checkpoint.interval import IntervalModel, LocalFailures, Rollbacks

    where = given["run"]
    cost_s = _needed(
        _seconds(given["cost"]) or (run.cost_s if run else None),
        "--cost 1.07s",
        f"{where} says how long checkpoints took, not how much work one costs" if run else "",
    )
    per_s = _needed(
        given["failure_rate"] or (run.failures_per_s if run else None),
        "--failure-rate 0.01/min",
    )
    restart_s = _needed(
        _seconds(given["restart"]) or (run.restart_s if run else None),
        "--restart 23.7s",
        f"no recovery was finished in {where}" if run else "",
    )
    speed = given["replay_speed"] or (run.replay_speed if run else None)
    if run is not None and not run.rolls_back:
        _needed(speed, "--replay-speed 3", f"failures were local, and {where} does not say how fast tasks replayed")
    others, feed_lag_s = _other_rollbacks(given, speed), _seconds(given["feed_lag"])
    if speed is None:
        if feed_lag_s is not None:
            raise click.UsageError("--feed-lag is for local failures: add --replay-speed", _context())
        return _solvable(IntervalModel(cost_s, Rollbacks(per_s, restart_s), None, _lag_s(given, run)))
    local = LocalFailures(per_s, restart_s, speed, feed_lag_s)
    return _solvable(IntervalModel(cost_s, others, local, _lag_s(given, run)))


def _solvable(model: IntervalModel) -> IntervalModel:
    """The model, if it has a best interval."""
    best_s = model.best_s()
    if best_s <= model.cost_s:
        _wrong("--cost", "failures leave no time for a checkpoint, whatever the interval: give a lower --cost")
    if best_s == math.inf:
        raise click.UsageError(
            "with --feed-lag a local failure costs the same after any interval: add --rollback-rate and "
            "--rollback-restart, or choose the longest interval for which frames are retained",
            _context(),
        )
    return model


def _needed(value: float | None, example: str, lacks: str = "") -> float:
    """A quantity that is given or measured. ``lacks``: why the run does not have it."""
    if value is None:
        option = example.split(maxsplit=1)[0]
        raise click.UsageError(f"{lacks}{': ' if lacks else ''}give {option}, such as {example}", _context())
    return value


def _lag_s(given: Mapping[str, Any], run: MeasuredRun | None) -> float:
    from clonos_py.checkpoint.interval import lag_of

    depth, delay_s = given["depth"], _seconds(given["delay"])
    if (depth is None) != (delay_s is None):
        raise click.UsageError("give both --depth and --delay, such as --depth 5 --delay 14ms, or neither", _context())
    if depth is None or delay_s is None:
        return run.lag_s or 0.0 if run else 0.0
    return lag_of(depth, delay_s)


def _other_rollbacks(given: Mapping[str, Any], speed: float | None) -> Rollbacks | None:
    from clonos_py.checkpoint.interval import Rollbacks

    rate, restart = given["rollback_rate"], given["rollback_restart"]
    if (rate is None) != (restart is None):
        raise click.UsageError("give both --rollback-rate and --rollback-restart, or neither", _context())
    if rate is not None and speed is None:
        raise click.UsageError(
            "without --replay-speed every failure rolls the job back: add --rollback-rate to --failure-rate", _context()
        )
    return None if rate is None else Rollbacks(rate, restart / 1e6)


def _own_s(model: IntervalModel, given_us: int | None, run: MeasuredRun | None) -> float | None:
    """The interval to compare with: the given one, else that of the run."""
    own_s = _seconds(given_us) or (run.interval_s if run else None)
    if own_s is not None and own_s <= model.cost_s:
        from clonos_py.evaluation.intervals.figures import span_text

        _wrong(
            "--interval",
            f"{span_text(own_s)} leaves no time to work, as a checkpoint costs {span_text(model.cost_s)}: "
            "give a longer --interval or a lower --cost",
        )
    return own_s


def _seconds(duration_us: int | None) -> float | None:
    return None if duration_us is None else duration_us / 1e6


def _wrong(option: str, message: str) -> NoReturn:
    raise click.BadParameter(message, _context(), param_hint=f"'{option}'")


def _context() -> click.Context:
    return click.get_current_context()


# ---- what is printed


def _taken(path: Path, run: MeasuredRun) -> str:
    from clonos_py.evaluation.intervals.figures import span_text

    found = [f"a failure every {span_text(1 / run.failures_per_s)}"]
    found += [] if run.restart_s is None else [f"a restart of {span_text(run.restart_s)}"]
    found += [] if run.replay_speed is None else [f"a replay speed of {run.replay_speed:.3g}"]
    found += [] if run.cost_s is None else [f"a checkpoint costs {span_text(run.cost_s)}"]
    found += [] if run.lag_s is None else [f"checkpoints complete after {span_text(run.lag_s)}"]
    kind = "rollbacks" if run.rolls_back else "local recovery"
    return f"{path}: {', '.join(found)} ({kind})"


def _print(rows: list[IntervalRow], data_rate: float | None, model: IntervalModel) -> None:
    from clonos_py.cli.tables import show
    from clonos_py.evaluation.intervals.figures import BEST, best_setting, share_text, span_text
    from clonos_py.observe.units import bytes_text

    def cells(row: IntervalRow) -> list[str]:
        bounds = row.bounds
        retained = [] if data_rate is None else [bytes_text(round(bounds.retained_s_max * data_rate))]
        return [
            span_text(row.interval_s),
            share_text(row.utilization),
            share_text(row.lost),
            f"{span_text(bounds.replay_s_mean)} / {span_text(bounds.replay_s_max)}",
            f"{span_text(bounds.visible_s_mean)} / {span_text(bounds.visible_s_max)}",
            *retained,
            row.name,
        ]

    best = next(row for row in rows if row.name == BEST)
    click.echo(
        f"best interval: {span_text(best.interval_s)} (--checkpoint-interval {best_setting(best.interval_s)}), "
        f"utilization {share_text(best.utilization)}\n"
    )
    again = "replay" if model.local else "work repeated"
    heads = ["interval", "utilization", "less work", f"{again}: mean / most", "rows visible: mean / most"]
    show("", [*heads, *([] if data_rate is None else ["retained"]), ""], map(cells, rows))


def _print_budget(rows: list[IntervalRow], given: Mapping[str, Any], model: IntervalModel) -> None:
    """Says so if a task cannot retain what it sends within the best interval."""
    from clonos_py.evaluation.intervals.figures import BEST, span_text
    from clonos_py.settings.kinds import SIZE

    budget_bytes = resolved({}, given).in_flight_budget_bytes
    longest_s = max(model.longest_s(budget_bytes, given["data_rate"]), 0.0)
    if longest_s < next(row.interval_s for row in rows if row.name == BEST):
        click.echo(
            f"\nan in-flight budget of {SIZE.show(budget_bytes)} allows {span_text(longest_s)} at most: give a larger "
            "--in-flight-budget, or let the job write frames to disk (--spill spill-threshold)"
        )


command = click.Command(
    "interval",
    callback=interval,
    params=[
        click.Option(["--failure-rate"], type=FailureRate(), help="How often a failure happens, anywhere in the job."),
        click.Option(["--cost"], type=_DURATION, help="The work that a checkpoint costs, as time that is lost."),
        click.Option(["--restart"], type=_DURATION, help="From a failure until work goes on, replay not included."),
        click.Option(
            ["--depth"], type=click.IntRange(1), metavar="N",
            help="Operators in a row, from source to sink. A checkpoint is complete when the barrier is through.",
        ),
        click.Option(["--delay"], type=_DURATION, help="How long a barrier takes from one of them to the next."),
        click.Option(
            ["--replay-speed"], type=Factor(),
            help="Failures are local: a standby replays at this multiple of normal speed, and nothing is lost.",
        ),
        click.Option(
            ["--rollback-rate"], type=FailureRate(), help="With --replay-speed: how often the whole job rolls back."
        ),
        click.Option(["--rollback-restart"], type=_DURATION, help="With --rollback-rate: how long that takes."),
        click.Option(
            ["--feed-lag"], type=_DURATION,
            help="With --replay-speed: standbys are fed, and so far behind (standby_feed). They replay no more.",
        ),
        click.Option(
            ["--from", "run"], type=_PATH, metavar="FILE|DIR",
            help="Takes what is not given from a report or a trace of a run with failures.",
        ),
        click.Option(["--interval"], type=_DURATION, help="An interval to compare with, such as yours."),
        click.Option(
            ["--data-rate"], type=BytesPerSecond(), metavar="SIZE/s",
            help="What a task sends: shows how much it retains.",
        ),
        *setting_options("in_flight_budget"),
        click.Option(
            ["--svg"], type=_PATH, metavar="FILE", callback=file_in_a_folder, help="Write a plot of utilization."
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, with all times in seconds."),
    ],
    help="""Finds the checkpoint interval with the highest utilization: the share of time in which a job neither takes
    checkpoints nor recovers nor repeats work.

    Without --replay-speed every failure rolls the job back to its last checkpoint. With it, a failed task is replaced
    and replays its log, as this engine does by default.

    The table has intervals around the best one: how much less work they get done, how long a failure makes a task
    replay, and how long rows wait in transactional sinks, whose rows a checkpoint makes visible.

    \b
    Examples:
      clonos interval --failure-rate 0.01/min --cost 1.07s --restart 23.7s --depth 5 --delay 14ms
      clonos interval --failure-rate 1/19d --cost 200ms --restart 800ms --replay-speed 3 --interval 5s
      clonos interval --from trace/ --cost 50ms --svg utilization.svg
    """,
)  # fmt: skip
