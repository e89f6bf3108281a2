"""Checks topics periodically in a thread: whether the cluster answers, and whether topics have changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from clonos_py.connectors.kafka.layout import TopicLayout
from clonos_py.connectors.kafka.port import Admin, Client, Failure, KafkaFailure
from clonos_py.model.errors import one_line

Changed = Callable[[Admin, int, int], None]


class TopicWatch:
    """Checks topics. The thread calls ``looked`` each time the cluster has answered, and ``grown`` with a topic's index
    in the list and its new number of partitions. It calls ``failed`` once, if the cluster was unreachable for longer
    than ``away_s``, or a topic was deleted or created again."""

    def __init__(
        self,
        client: Client,
        topics: Sequence[TopicLayout],
        every_s: float,
        away_s: float,
        looked: Callable[[Admin], None],
        grown: Changed,
        failed: Callable[[KafkaFailure], None],
    ) -> None:
        self._client, self._topics = client, list(topics)
        self._every_s, self._away_s = every_s, away_s
        self._looked, self._grown, self._failed = looked, grown, failed
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="kafka topics", daemon=True).start()

    def close(self) -> None:
        """Closes; the thread ends soon."""
        self._closed.set()

    def _run(self) -> None:
        admin: Admin | None = None
        answered = time.monotonic()
        while not self._closed.is_set():
            try:
                admin = admin or self._client.admin()
                self._look(admin)
                answered = time.monotonic()
            except KafkaFailure as failure:
                if failure.kind is not Failure.AWAY:
                    self._failed(failure)
                    break
                if time.monotonic() - answered > self._away_s:
                    text = f"the cluster has not answered for {self._away_s:g} s: {failure}"
                    self._failed(KafkaFailure(Failure.AWAY, text))
                    break
                if admin is not None:
                    admin.close()
                    admin = None
            except Exception as problem:  # noqa: BLE001 - without the watch the source would wait forever
                self._failed(KafkaFailure(Failure.REFUSED, f"{type(problem).__name__}: {one_line(problem)}"))
                break
            self._closed.wait(self._every_s)
        if admin is not None:
            admin.close()

    def _look(self, admin: Admin) -> None:
        found = admin.topics([topic.name for topic in self._topics])
        for place, known in enumerate(self._topics):
            now = found.get(known.name)
            if now is None or now.id != known.id:
                what = "was deleted" if now is None else "was deleted and made again"
                raise KafkaFailure(Failure.REFUSED, f"topic {known.name!r} {what}: start over with --fresh")
            if now.partitions > known.partitions:
                self._grown(admin, place, now.partitions)
                self._topics[place] = TopicLayout(known.name, known.id, now.partitions)
        self._looked(admin)
