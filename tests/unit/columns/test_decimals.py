"""Products of integers and a decimal are Arrow's, whether they fit 64 bits or not."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.decimals import integers_times
from clonos_py.dsl.expressions import col

KINDS = (pa.int8(), pa.int32(), pa.int64(), pa.uint64())
FACTORS = st.decimals(places=3, min_value=-10_000, max_value=10_000)


@given(st.sampled_from(KINDS), st.lists(st.integers(0, 127)), st.integers(0, 3), FACTORS)
def test_small_products_are_those_of_arrow(kind: pa.DataType, values: list[int], cut: int, factor: Decimal) -> None:
    integers = pa.array(values, kind).slice(cut)
    scalar = pa.scalar(factor)
    found = integers_times(integers, scalar)
    assert found is not None
    assert found.equals(pc.multiply(integers, scalar))


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))), FACTORS, st.booleans())
def test_large_products_and_nulls_are_right(values: list[int | None], factor: Decimal, swapped: bool) -> None:
    rows = pa.record_batch({"a": pa.array(values, pa.int64())})
    product = factor * col("a") if swapped else col("a") * factor
    expected = [None if value is None else value * factor for value in values]
    assert product.node.compile(rows.schema, "op")(rows).to_pylist() == expected


@pytest.mark.parametrize("factor", [Decimal(10) ** 30, Decimal("1e-15"), Decimal("-99999999999999999999.9")])
def test_a_factor_beyond_64_bits_is_left_to_arrow(factor: Decimal) -> None:
    big = abs(int(factor.scaleb(-int(factor.as_tuple().exponent)))) > 2**63
    assert (integers_times(pa.array([2, 3]), pa.scalar(factor)) is None) == big


def test_the_decimal_context_of_user_code_does_not_matter() -> None:
    scalar = pa.scalar(Decimal("0.908123"))
    with localcontext(prec=3):
        found = integers_times(pa.array([10]), scalar)
    assert found is not None
    assert found.to_pylist() == [Decimal("9.081230")]
