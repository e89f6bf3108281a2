from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest

from clonos_py.connectors.memory import MemorySource
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import EventTime
from clonos_py.model.plan import SourcePlan
from clonos_py.model.state import OperatorState
from clonos_py.task.reader import Reader


def reader(partitions: int) -> Reader:
    rows = pa.record_batch({"n": pa.array(range(12))})
    source = MemorySource(rows, partitions=partitions)
    return Reader(SourcePlan("numbers", partial(source.create, (None,)), source.schemas, EventTime((None,))), 0, 1)


def test_positions_of_all_former_instances_are_taken_over() -> None:
    ours = reader(4)
    ours.restore([OperatorState(values={"positions": {0: 1}}), OperatorState(values={"positions": {3: 2}})], None)
    assert ours.snapshot().values["positions"] == {0: 1, 3: 2}


def test_a_partition_that_vanished_since_the_checkpoint_is_an_error() -> None:
    with pytest.raises(SourceError, match="the list of inputs has changed since the checkpoint, partition 3 is gone"):
        reader(3).restore([OperatorState(values={"positions": {0: 1, 3: 2}})], None)
