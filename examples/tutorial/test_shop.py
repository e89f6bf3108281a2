from datetime import UTC, datetime

import shop

from clonos_py import testing


def at(second: int) -> datetime:
    return datetime(2026, 3, 2, 9, 0, second, tzinfo=UTC)


def test_orders_of_a_minute_are_added_up_whatever_fails() -> None:
    orders = [shop.Order(at(1), "tea", 350), shop.Order(at(30), "tea", 200), shop.Order(at(31), "tea", -200)]
    out = testing.run(shop.job(), {"orders": orders}, kills=2, seeds=20)
    assert out["files"] == [shop.Takings("tea", datetime(2026, 3, 2, 9, 1, tzinfo=UTC), 2, 550)]
