"""A job's code travels to processes that have none of the user's files, row classes included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from clonos_py.model.record import record_type
from clonos_py.runtime.ray.shipping import pack, unpack

MODULE = """
from __future__ import annotations
from clonos_py import Instant, MapState, Money, Process, Record, map_state

class Event(Record):
    at: Instant

class Bid(Event):
    price: Money
    note: str | None = None
    tags: list[str] = []

    def louder(self) -> Bid:
        return Bid(self.at, self.price, (self.note or "").upper(), self.tags)

    @property
    def cents(self) -> int:
        return int(self.price * 100)

def shout(bid: Bid) -> Bid:
    return bid.louder()

class Loudest(Process[Bid, Bid]):
    bids: MapState[str, Bid] = map_state()
"""
FAR_END = """
import sys
import typing
from decimal import Decimal
from clonos_py.runtime.ray.shipping import unpack
Bid, shout, Loudest, sample = unpack(open(sys.argv[1], "rb").read())
loud = shout(Bid(5, Decimal("2.50"), note="quiet"))
assert (loud.note, loud.cents, loud.tags, type(loud)) == ("QUIET", 250, [], Bid)
assert sample == Bid(1, Decimal("1.00")), sample
assert shout(sample).note == ""
assert typing.get_type_hints(Loudest)["bids"] == dict[str, Bid]
print(Bid.schema().to_string(show_field_metadata=False))
"""


def test_classes_reach_a_process_without_their_module(tmp_path: Path) -> None:
    (tmp_path / "far_bids.py").write_text(MODULE)
    pack_code = (
        "import sys; sys.path.insert(0, '.'); from decimal import Decimal;"
        "from clonos_py.runtime.ray.shipping import pack;"
        "from far_bids import Bid, Loudest, shout;"
        "open('packed', 'wb').write(pack((Bid, shout, Loudest, Bid(1, Decimal('1.00')))))"
    )
    subprocess.run([sys.executable, "-c", pack_code], cwd=tmp_path, check=True)
    (tmp_path / "far_bids.py").unlink()
    far = subprocess.run(
        [sys.executable, "-c", FAR_END, "packed"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert far.returncode == 0, far.stderr
    assert far.stdout.split("\n")[:4] == [
        "at: int64 not null",
        "price: decimal128(18, 2) not null",
        "note: string",
        "tags: list<item: string not null> not null",
    ]


def test_row_classes_made_from_a_schema_can_be_shipped() -> None:
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False)])
    other = unpack(pack(record_type(schema)))
    assert other.schema() == schema
    assert other(n=3).n == 3


def test_a_class_of_the_package_stays_the_same_class() -> None:
    from clonos_py.model.record import DeadLetter

    assert unpack(pack(DeadLetter)) is DeadLetter
