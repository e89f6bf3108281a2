"""Query 6, average selling price by seller, over each sale and the seller's ten previous sales.

SELECT Q.seller, AVG(Q.price) OVER (PARTITION BY Q.seller ORDER BY Q.dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY A.id, A.seller ORDER BY B.price DESC) AS rownum
      FROM (SELECT A.id, A.seller, B.price, B.dateTime FROM auction AS A, bid AS B
            WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires)
      WHERE rownum <= 1) AS Q

In Flink SQL, an average of integers is an integer, rounded towards zero. Of equal bids, the earliest wins. Streaming
SQL engines cannot run this query, since rows of Q change. A process function can, since it can detect when they are
final: the winner of an auction when the auction has expired, and the position of a sale among those of its seller when
no open auction can produce an earlier sale.
"""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py import (
    Context,
    Instant,
    ListState,
    MapState,
    Process,
    Record,
    Stream,
    col,
    event_timer,
    list_state,
    map_state,
    until,
)
from clonos_py.evaluation.nexmark.streams import Streams

_SALES = 11


class Offer(Record):
    id: int
    seller: int
    price: int
    date_time: Instant
    expires: Instant

    @property
    def rank(self) -> tuple[int, int]:
        return -self.price, self.date_time


class AveragePrice(Record):
    seller: int
    avg_price: int


class LastSales(Process[Offer, AveragePrice]):
    """The sales of a seller, in the order of their bids."""

    best: MapState[int, Offer] = map_state()
    """The best offer for each open auction."""
    sold: ListState[Offer] = list_state()
    """Sales that an earlier sale, of a still open auction, may still precede."""
    prices: ListState[int] = list_state()
    """The prices of the last sales."""
    closing = event_timer()
    """Fires when the last open auction has expired."""

    def on_row(self, offer: Offer, ctx: Context) -> Iterator[AveragePrice]:
        yield from self._settled(offer.date_time)
        if offer.id not in self.best or offer.rank < self.best[offer.id].rank:
            self.best[offer.id] = offer
        self.closing.set(max(offer.expires + 1, self.closing.at or 0))

    @closing.fires
    def closed(self, ctx: Context) -> Iterator[AveragePrice]:
        yield from self._settled(ctx.event_time)

    def _settled(self, now: int) -> Iterator[AveragePrice]:
        """The average prices of sales whose position is final at ``now``."""
        for sale in [offer for offer in self.best.values() if offer.expires < now]:
            self.sold.append(self.best.pop(sale.id))
        self.sold.sort(key=lambda sale: sale.date_time)
        earliest = min((offer.date_time for offer in self.best.values()), default=now)
        while self.sold and self.sold[0].date_time < earliest:
            sale = self.sold.pop(0)
            self.prices.append(sale.price)
            del self.prices[:-_SALES]
            yield AveragePrice(sale.seller, sum(self.prices) // len(self.prices))


def q6(events: Streams) -> Stream[AveragePrice]:
    auctions = events.auction.select("id", "seller", "expires", auction_time=col("date_time"))
    bids = events.bid.select("auction", "price", "date_time")
    offers = auctions.join(bids, on=("id", "auction"), within=until("expires"), into=Offer).named("join")
    winners = offers.key_by("id").top(1, by=[col("price").desc(), "date_time"], into=Offer).named("winners").changes()
    return winners.key_by("seller").process(LastSales, in_order=True).named("averages")
