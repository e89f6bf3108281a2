"""What an error advises in a replay: never to start over."""

from __future__ import annotations

import pytest

from clonos_py.model.errors import CheckpointError, RecordError, SourceError, UserCodeError
from clonos_py.runtime.record_errors import as_record_errors

KEPT = "choose another interval: `clonos record ls` shows what is kept"


@pytest.mark.parametrize(
    ("text", "advised"),
    [
        ("it is cut; restore it from a copy, or start over with --fresh", f"restore it from a copy, or {KEPT}"),
        ("put it back, which goes on; or start over with --fresh", f"put it back, which goes on, or {KEPT}"),
        ("of other topics: resume with these, or start with --fresh", f"resume with these, or {KEPT}"),
        ("not valid in it: start over with --fresh", f"not valid in it: {KEPT}"),
    ],
)
def test_an_error_advises_another_interval_and_not_to_start_over(text: str, advised: str) -> None:
    for kind in (CheckpointError, SourceError):
        with pytest.raises(RecordError) as found, as_record_errors(of_one_interval=True):
            raise kind(text)
        assert str(found.value).endswith(advised)
        with pytest.raises(RecordError) as found, as_record_errors(of_one_interval=False):
            raise kind(text)
        assert "--fresh" not in str(found.value)
        assert KEPT not in str(found.value)


def test_other_errors_stay_as_they_are() -> None:
    problem = UserCodeError("operator 'a' failed")
    with pytest.raises(UserCodeError) as found, as_record_errors(of_one_interval=True):
        raise problem
    assert found.value is problem
