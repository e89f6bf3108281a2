"""The parameters of the events: the options of the official generator with its defaults, and CheckMate's skew."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from clonos_py.model.errors import SettingError

RATE_SHAPES = ("square", "sine")
MOST_BYTES = 10_000
"""The maximum mean size of an event."""

_BLOCK_EVENTS = 50_000
_BLOCK_CYCLES = 100
_STRIDE = 953
_SINE_STEPS = 10


@dataclass(frozen=True)
class Model:
    """The event model. Equal models and seeds give equal events. The defaults are the official ones.

    Events come in cycles of ``person_proportion`` people, then auctions, then bids. Of ``hot_seller_ratio`` auctions,
    all but one are by the hot seller, and so on; a ratio of 1 disables hot ones. ``skew`` replaces the three ratios by
    one probability of being hot, as in CheckMate. Sizes in bytes are means. With ``out_of_order_group`` n, events are
    permuted within groups of n. If ``next_event_rate`` is given, the rate changes from the event rate to it and back
    within ``rate_period_s``, in two steps (``square``) or ten (``sine``).
    """

    person_proportion: int = 1
    auction_proportion: int = 3
    bid_proportion: int = 46
    hot_auction_ratio: int = 2
    hot_seller_ratio: int = 4
    hot_bidder_ratio: int = 4
    skew: float | None = None
    active_people: int = 1_000
    open_auctions: int = 100
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    out_of_order_group: int = 1
    next_event_rate: int | None = None
    rate_shape: str = RATE_SHAPES[0]
    rate_period_s: int = 600

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "skew" and isinstance(value, int) and value < 1:
                raise SettingError(f"{field.name} is {value}: Nexmark events need at least 1")
            if field.name.endswith("_bytes") and value > MOST_BYTES:
                raise SettingError(f"{field.name} is {value}: at most {MOST_BYTES}")
        if self.skew is not None and not 0 <= self.skew <= 1:
            raise SettingError(f"skew is {self.skew}: it must be from 0 to 1")
        if self.rate_shape not in RATE_SHAPES:
            raise SettingError(f"rate_shape is {self.rate_shape!r}: choose one of {', '.join(RATE_SHAPES)}")
        if self.block_events % self.out_of_order_group or math.gcd(self.out_of_order_group, _STRIDE) > 1:
            raise SettingError(
                f"out_of_order_group is {self.out_of_order_group}: events are made in blocks of {self.block_events}, "
                "so choose a divisor of that such as 10, 100 or 1000"
            )

    @property
    def cycle_events(self) -> int:
        return self.person_proportion + self.auction_proportion + self.bid_proportion

    @property
    def block_cycles(self) -> int:
        """The cycles per block: about 50,000 events, and a multiple of 100 cycles, so that every block begins with the
        first of a hundred people."""
        return max(round(_BLOCK_EVENTS / self.cycle_events / _BLOCK_CYCLES), 1) * _BLOCK_CYCLES

    @property
    def block_events(self) -> int:
        return self.block_cycles * self.cycle_events

    @property
    def cold_auction(self) -> float:
        """The probability that a bid is for a random auction instead of the hot one."""
        return self._cold(self.hot_auction_ratio)

    @property
    def cold_seller(self) -> float:
        return self._cold(self.hot_seller_ratio)

    @property
    def cold_bidder(self) -> float:
        return self._cold(self.hot_bidder_ratio)

    def _cold(self, ratio: int) -> float:
        return 1 / ratio if self.skew is None else 1 - self.skew

    def rates(self, event_rate: int) -> tuple[int, ...]:
        """Events per second of event time, step by step."""
        next_rate = self.next_event_rate or event_rate
        if next_rate == event_rate:
            return (event_rate,)
        if self.rate_shape == "square":
            return event_rate, next_rate
        middle, swing = (event_rate + next_rate) / 2, (event_rate - next_rate) / 2
        angles = (2 * math.pi * step / _SINE_STEPS for step in range(_SINE_STEPS))
        return tuple(max(round(middle + swing * math.cos(angle)), 1) for angle in angles)

    def place(self, number: int) -> int:
        """The position of event ``number`` in its out-of-order group; both count from 0."""
        return number * pow(_STRIDE, -1, self.out_of_order_group) % self.out_of_order_group


OFFICIAL = Model()
