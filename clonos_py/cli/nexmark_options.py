"""Options of the Nexmark events, which the commands of ``clonos nexmark`` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from clonos_py.cli.counts import Count

_MODEL_HELP = {
    "person_proportion": "People in each cycle of events.",
    "auction_proportion": "Auctions in each cycle.",
    "bid_proportion": "Bids in each cycle.",
    "hot_auction_ratio": "One bid in this many is not for the hot auction.",
    "hot_seller_ratio": "One auction in this many is not by the hot seller.",
    "hot_bidder_ratio": "One bid in this many is not by the hot bidder.",
    "skew": "The chance to be hot, 0 to 1, instead of the three ratios.",
    "active_people": "How many people bid and sell at a time.",
    "open_auctions": "How many auctions are open at a time.",
    "person_bytes": "Mean size of a person.",
    "auction_bytes": "Mean size of an auction.",
    "bid_bytes": "Mean size of a bid, channel and page not counted.",
    "out_of_order_group": "Events are shuffled within groups of this size.",
    "next_event_rate": "A second event rate, with which the first alternates.",
    "rate_shape": "How the event rate alternates: in two steps, or in ten along a wave.",
    "rate_period_s": "Length of one cycle of rates, in seconds of event time.",
}


class EventsParam(click.ParamType["int | Path"]):
    """A folder of events, or the number of events to generate."""

    name = "DIR|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | Path:
        if isinstance(value, int | Path):
            return value
        try:
            return Count().convert(value, param, ctx)
        except click.BadParameter:
            return Path(value)


def events_from_option() -> click.Option:
    """The folder whose events take the place of generated ones."""
    return click.Option(
        ["--events-from"], type=click.Path(path_type=Path), metavar="DIR",
        help="Replays what clonos nexmark generate wrote, instead of making events.",
    )  # fmt: skip


def events_options(**defaults: object) -> list[click.Option]:
    """The generator's options that are not settings of a run. ``defaults`` overrides some of the official values."""
    from clonos_py.evaluation.nexmark.model import OFFICIAL, RATE_SHAPES

    rate = click.Option(
        ["--event-rate"], type=Count(), default=defaults.get("event_rate", 500_000), show_default=True,
        help="Events that share a second of event time.",
    )  # fmt: skip
    official = {field.name: getattr(OFFICIAL, field.name) for field in fields(OFFICIAL)}
    return [rate, *(_model_option(name, defaults.get(name, value), RATE_SHAPES) for name, value in official.items())]


def _model_option(name: str, default: object, shapes: tuple[str, ...]) -> click.Option:
    kind: click.ParamType[Any] = Count()
    if name == "rate_shape":
        kind = click.Choice(shapes)
    elif name == "skew":
        kind = click.FLOAT
    return click.Option(
        [f"--{name.replace('_', '-')}", name], type=kind, default=default, show_default=default is not None,
        help=_MODEL_HELP[name],
    )  # fmt: skip


def model_of(given: Mapping[str, Any]) -> Any:
    """The event model with the values of the options. Raises SettingError."""
    from clonos_py.evaluation.nexmark.model import Model

    return Model(**{name: given[name] for name in _MODEL_HELP})
