"""Floats rounded to decimal places as Python's ``round`` does: to the float that is nearest to the decimal number.

Arrow and numpy scale, round and scale back. So they overflow for large values, and round 82.35, a float less than the
number of that name, to 82.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import fixed, valid

_PLACES_MAX = 22
"""10 to this power is a float."""
_SCALED_MAX = 2.0**50
"""Smaller scaled values have a fraction."""


def rounded(column: Any, places: int) -> Any:
    """The floats of an array, rounded half to even to ``places`` decimal places, which may be negative. Raises
    pa.ArrowInvalid if a result is too large for a float."""
    values: Any = fixed(column).astype(np.float64)
    found = values.copy()
    doubtful = np.isfinite(values)
    if abs(places) <= _PLACES_MAX:
        power = 10.0 ** abs(places)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = values * power if places >= 0 else values / power
            whole = np.rint(scaled)
            found = whole / power if places >= 0 else whole * power
            to_half = np.abs(np.abs(scaled - whole) - 0.5)
            error = np.abs(scaled) * 2.0**-52
            doubtful &= ~((np.abs(scaled) < _SCALED_MAX) & (to_half > error))
    try:
        found[doubtful] = [round(value, places) for value in values[doubtful].tolist()]
    except OverflowError as error:
        raise pa.ArrowInvalid("overflow") from error
    known = valid(column)
    return pa.array(found, mask=None if known is None else ~known).cast(column.type)
