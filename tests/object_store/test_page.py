"""The example of the page about files, in a real object store."""

from __future__ import annotations

import gzip

from clonos_py import Job, Record, col
from clonos_py.connectors import FileSink, FileSource, read_results
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from tests.s3_server import BUCKET, S3Server


class Reading(Record):
    sensor: str
    celsius: float


def archived(bucket: str) -> Job:
    job = Job("archived")
    readings = job.source(FileSource(f"{bucket}/in/*.jsonl.gz", Reading))
    hot = readings.filter(col("celsius") > 30)
    hot.sink(FileSink(f"{bucket}/hot", "parquet", partition_by="sensor", roll="128MB")).named("hot")
    return job


def test_the_example_writes_what_it_says(uri: str, s3: S3Server) -> None:
    lines = b"".join(b'{"sensor": "%s", "celsius": %d}\n' % (name, n) for name in (b"a", b"b") for n in range(25, 35))
    s3.client().put_object(
        Bucket=BUCKET, Key=f"{uri}/in/1.jsonl.gz".removeprefix(f"s3://{BUCKET}/"), Body=gzip.compress(lines)
    )
    run_job(archived(uri), resolve(command_line={"runtime": "local", "checkpoints": f"{uri}/checkpoints"}))
    expected = [(name, float(n)) for name in ("a", "b") for n in range(31, 35)]
    assert [(row["sensor"], row["celsius"]) for row in read_results(f"{uri}/hot")] == expected
