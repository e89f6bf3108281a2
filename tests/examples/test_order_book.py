"""The order books of an exchange: from a WebSocket server, and in the simulator with a kill."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec

from clonos_py import testing
from clonos_py.connectors import read_results
from clonos_py.settings.definitions import Runtime
from examples import order_book
from tests.message_server import message_server
from tests.rewritten_examples import Rows, contents, given
from tests.waiting import wait_until


def messages() -> Rows:
    """A snapshot of each of two books, and changes of them, some of which remove a price."""
    draw = random.Random(1)

    def levels(*steps: int) -> list[list[str]]:
        return [[f"{10_000 + step / 2}", f"{draw.randrange(1, 9)}"] for step in steps]

    found: Rows = [
        {"type": "snapshot", "product_id": product, "bids": levels(1, 2, 3), "asks": levels(7, 8, 9)}
        for product in ("BTC-EUR", "ETH-EUR")
    ]
    for _ in range(60):
        step, size = draw.randrange(10), draw.randrange(3)
        change = ["buy" if step < 5 else "sell", f"{10_000 + step / 2}", f"{size}"]
        found.append({"type": "l2update", "product_id": draw.choice(["BTC-EUR", "ETH-EUR"]), "changes": [change]})
    return found


def spreads(messages: Rows) -> Rows:
    sizes: dict[tuple[str, str, float], float] = {}
    found = []
    for message in messages:
        product = message["product_id"]
        changes = [("buy", *level) for level in message.get("bids", ())]
        changes += [("sell", *level) for level in message.get("asks", ())] + message.get("changes", [])
        sizes |= {(product, side, float(price)): float(size) for side, price, size in changes}
        bids, asks = (
            [(price, size) for (of, on, price), size in sizes.items() if (of, on) == (product, side) and size]
            for side in ("buy", "sell")
        )
        if bids and asks:
            (bid, bid_size), (ask, ask_size) = max(bids), min(asks)
            if (ask - bid) / ask > 0.0001:
                row = {"product": product, "bid": bid, "bid_size": bid_size, "ask": ask, "ask_size": ask_size}
                found.append({**row, "spread": ask - bid})
    return found


def test_order_books_of_a_server_give_their_best_prices(tmp_path: Path) -> None:
    sent = [{"type": "subscriptions", "channels": []}, *messages()]
    with message_server([json.dumps(message) for message in sent], asks=True, keeps=False) as server:
        run = order_book.job(feed=server.url, out=str(tmp_path)).start(runtime=Runtime.LOCAL)
        wait_until(lambda: run.counters.get("books.rows_in") == len(messages()), shown=lambda: str(run.counters))
        run.stop()
        assert server.asked[0]["product_ids"] == ["BTC-USD", "ETH-USD", "BTC-EUR", "ETH-EUR"]
    assert contents(read_results(str(tmp_path))) == contents(spreads(messages()))


def test_order_books_give_their_best_prices_although_a_process_is_killed() -> None:
    rows = [{"bids": None, "asks": None, "changes": None, **message} for message in messages()]
    out = testing.run(order_book.job(), {"feed": given(rows, order_book.Message)}, kills=1)
    expected = spreads(messages())
    assert contents(map(msgspec.to_builtins, out["spreads"])) == contents(expected)
    assert 0 < len(expected) < len(rows)
