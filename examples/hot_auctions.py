"""Auctions with many bids, from topic to topic of a Kafka cluster: results are visible within milliseconds.

The password of the user is in the environment. The test of this job is in tests/examples.

    KAFKA_PASSWORD=... clonos run examples/hot_auctions.py --bootstrap localhost:9092
"""

from __future__ import annotations

from clonos_py import Instant, Job, Record, col, count, tumbling
from clonos_py.connectors import KafkaSecurity, KafkaSink, KafkaSource, Secret


class Bid(Record):
    auction: int
    price: int
    at: Instant


class Hot(Record):
    auction: int
    window_end: Instant
    bids: int


def job(bootstrap: str = "localhost:9092") -> Job:
    security = KafkaSecurity("SASL_PLAINTEXT", "PLAIN", username="hot", password=Secret(env="KAFKA_PASSWORD"))
    made = Job("hot-auctions", checkpoints="checkpoints")
    bids = made.source(
        KafkaSource("bids", Bid, bootstrap=bootstrap, columns={"at": "timestamp"}, security=security),
        event_time="at", out_of_order="4s", idle="30s",
    )  # fmt: skip
    hot = bids.filter(col("price") > 100).key_by("auction").window(tumbling("10s")).aggregate(Hot, bids=count())
    hot.sink(KafkaSink("hot", bootstrap=bootstrap, key="auction", security=security))
    return made
