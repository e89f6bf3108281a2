"""Equal values are in one group, whichever bits represent them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py.columns.grouping import group
from clonos_py.columns.keys import hash_array

NANS = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_zeros_and_nans_are_one_value_each_for_all_bit_patterns(kind: pa.DataType) -> None:
    column = pa.concat_arrays([pa.array(NANS).cast(kind), pa.array([0.0, -0.0, None, 1.0, None], kind)])
    found = group([column], len(column))
    assert found.ids.tolist() == [0, 0, 0, 1, 1, 2, 3, 2]
    encoded = group([column.dictionary_encode()], len(column))
    assert encoded.ids.tolist() == found.ids.tolist()
    assert len(set(hash_array(column).tolist())) == found.size, "hashes and groups of keys agree"


def test_nans_are_one_value_however_they_were_computed() -> None:
    quotients = pc.divide(pa.array([0.0, 1.0]), pa.array([0.0, 1.0]))
    column = pa.concat_arrays([quotients, pa.array([float("nan")]), pc.subtract(pa.array([np.inf]), np.inf)])
    assert group([column], len(column)).ids.tolist() == [0, 1, 0, 0]
    assert len(set(NANS.view(np.uint64).tolist())) == len(NANS), "otherwise the test above shows little"
