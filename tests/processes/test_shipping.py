"""A job's code travels to processes that have none of the user's files, row classes included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from clonos_py.model.record import record_type
from clonos_py.plan.pickling import pack
from clonos_py.runtime.ray.shipping import unpack

MODULE = """
from __future__ import annotations
import enum
import functools
from dataclasses import dataclass
from typing import ClassVar, NewType
import msgspec
from clonos_py import Instant, MapState, Money, Process, Record, map_state

class Currency(enum.Enum):
    EUR = "eur"

class Event(Record):
    at: Instant

class Bid(Event):
    LIMIT: ClassVar[int] = 100
    price: Money
    note: str | None = None
    tags: list[str] = []

    def louder(self) -> "Bid":
        return Bid(self.at, self.price, (self.note or "").upper(), self.tags)

    @property
    def cents(self) -> int:
        return int(self.price * self.LIMIT)

    @classmethod
    def free(cls) -> "Bid":
        return cls(0, price=0)

class Ranked(Record, kw_only=True, order=True, rename="camel"):
    rank_number: int = 3
    id: int
    unit: str = msgspec.field(name="Unit price", default="eur")

class Easy(Ranked, kw_only=True):
    id: int = 9

def shout(bid: Bid) -> Bid:
    return bid.louder()

class Loudest(Process[Bid, Bid]):
    bids: MapState[str, Bid] = map_state()
    currency = Currency.EUR

@dataclass
class Numbers:
    total: int = 3

@functools.lru_cache(maxsize=7)
def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

UserId = NewType("UserId", int)

def known(n: int) -> tuple[int, Currency]:
    return UserId(fibonacci(n)), Currency("eur")

def all_of_it():
    from decimal import Decimal
    return (Bid, shout, Loudest, Bid(1, Decimal("1.00")), Ranked, Numbers(4), known, Currency, Easy)
"""
FAR_END = """
import sys
import typing
from decimal import Decimal
from clonos_py.runtime.ray.shipping import unpack
for path in sys.argv[1:]:
    Bid, shout, Loudest, sample, Ranked, numbers, known, Currency, Easy = unpack(open(path, "rb").read())
    loud = shout(Bid(5, Decimal("2.50"), note="quiet"))
    assert (loud.note, loud.cents, loud.tags, type(loud)) == ("QUIET", 250, [], Bid)
    assert sample == Bid(1, Decimal("1.00")), sample
    assert sample.note is None and Bid.LIMIT == 100 and Bid.free() == Bid(0, 0)
    assert shout(sample).note == ""
    assert typing.get_type_hints(Loudest)["bids"] == dict[str, Bid]
    assert Loudest.currency is Currency.EUR
    assert Ranked.schema().names == ["rankNumber", "id", "Unit price"], Ranked.schema()
    assert Ranked(id=1) < Ranked(id=2, rank_number=3) and Ranked(id=1).unit == "eur"
    assert Easy().id == 9 and issubclass(Easy, Ranked)
    assert not Ranked.__match_args__
    assert numbers.total == 4
    assert known(30) == (832040, Currency.EUR)
    assert known.__globals__["fibonacci"].cache_info().maxsize == 7
    print(Bid.schema().to_string(show_field_metadata=False))
"""
PACK = "open('{}', 'wb').write(__import__('clonos_py.plan.pickling').plan.pickling.pack({}()))"
WAYS = {
    "module": [
        "-c",
        f"import sys; sys.path.insert(0, '.'); import far_bids; {PACK.format('module', 'far_bids.all_of_it')}",
    ],
    "script": ["far_script.py"],
    "cell": ["-c", "import __main__; exec(compile(open('far_script.py').read(), '<cell 1>', 'exec'), vars(__main__))"],
    "namespace": ["-c", "exec(open('far_script.py').read().partition('annotations')[2], {'__name__': 'cells'})"],
}
"""Ways to define what a job consists of: in an imported module, in a script, in cells, in a namespace of no
module, where annotations cannot be text."""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("near")
    (folder / "far_bids.py").write_text(MODULE)
    found = []
    for way, arguments in WAYS.items():
        (folder / "far_script.py").write_text(MODULE + PACK.format(way, "all_of_it"))
        subprocess.run([sys.executable, *arguments], cwd=folder, check=True)
        found.append(folder / way)
    return found


def test_what_users_define_reaches_a_process_that_does_not_have_it(packed: list[Path], tmp_path: Path) -> None:
    far = subprocess.run(
        [sys.executable, "-c", FAR_END, *map(str, packed)], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert far.returncode == 0, far.stderr
    assert far.stdout.splitlines() == [
        "at: int64 not null",
        "price: decimal128(18, 2) not null",
        "note: string",
        "tags: list<item: string not null> not null",
        "  child 0, item: string not null",
    ] * len(WAYS)


def test_row_classes_made_from_a_schema_can_be_shipped() -> None:
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False)])
    other = unpack(pack(record_type(schema)))
    assert other.schema() == schema
    assert other(n=3).n == 3


def test_a_class_of_the_package_stays_the_same_class() -> None:
    from clonos_py.model.record import DeadLetter

    assert unpack(pack(DeadLetter)) is DeadLetter
