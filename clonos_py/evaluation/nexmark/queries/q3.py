"""Query 3, local item suggestion: sellers in Oregon, Idaho or California, with their auctions in category 10.

SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')

A seller may register after the auction, so the join stores all rows of both sides.
"""

from __future__ import annotations

from clonos_py import Record, Stream, col, forever
from clonos_py.evaluation.nexmark.streams import Streams


class Suggestion(Record):
    name: str
    city: str
    state: str
    auction: int


def q3(events: Streams) -> Stream[Suggestion]:
    people = events.person.filter(col("state").is_in(["OR", "ID", "CA"]))
    auctions = events.auction.filter(col("category") == 10).select("seller", auction=col("id"))
    return people.join(auctions, on=("id", "seller"), within=forever(), into=Suggestion).named("join")
