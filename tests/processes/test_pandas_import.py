"""pandas stays out of a process until something imports it, and pyarrow then treats its values as ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

DEFERRED = """
import sys
from clonos_py.runtime.pandas_import import defer_pandas
defer_pandas()
defer_pandas()
import pyarrow as pa
pa.array([1, 2]), pa.scalar("text"), pa.array([1.5]).to_pylist()
assert "pandas" not in sys.modules
"""
USES = {
    "a series": "import pandas as pd; assert pa.array(pd.Series([1.0, float('nan')])).null_count == 1",
    "a conversion": "assert pa.array([1, 2]).to_pandas().sum() == 3",
    "a frame": "import pandas as pd; assert pa.table(pd.DataFrame({'a': [1]})).num_rows == 1",
    "Polars before pandas": (
        "import polars; import pandas as pd; assert pa.array(pd.Series([1.0, float('nan')])).null_count == 1"
    ),
    "its files": "from importlib import resources; assert resources.files('pandas').is_dir()",
    "an absent module": """
try:
    import pandas.absent
except ModuleNotFoundError as error:
    assert error.name == "pandas.absent"
""",
}


IMPORTED = "import pyarrow\n"


@pytest.mark.parametrize(
    ("before", "use"),
    [
        ("", "a series"),
        ("", "Polars before pandas"),
        (IMPORTED, "a series"),
        *(
            pytest.param(before, use, marks=pytest.mark.thorough)
            for before in ("", IMPORTED)
            for use in USES
            if use not in ("a series", "Polars before pandas")
        ),
    ],
)
def test_pandas_works_as_ever_once_it_is_used(before: str, use: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", before + DEFERRED + USES[use]], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_pandas_that_is_already_imported_stays() -> None:
    code = """
import pandas, sys
from clonos_py.runtime.pandas_import import defer_pandas
before = list(sys.meta_path)
defer_pandas()
assert sys.meta_path == before
"""
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == 0
