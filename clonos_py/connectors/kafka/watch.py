"""Checks topics periodically in a thread: whether the cluster answers, and whether topics have changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from clonos_py.connectors.kafka.client import Admin, Client, Failure, KafkaFailure
from clonos_py.connectors.kafka.layout import TopicLayout
from clonos_py.model.errors import one_line

Changed = Callable[[Admin, int, int], None]


class TopicWatch:
    """Checks topics. The thread calls ``on_checked`` each time the cluster has answered, and ``on_new_partitions`` with
    a topic's index in the list and its new number of partitions. It calls ``on_failure`` once, if the cluster was
    unreachable for longer than ``away_s``, or a topic was deleted or created again."""

    def __init__(
        self,
        client: Client,
        topics: Sequence[TopicLayout],
        every_s: float,
        away_s: float,
        on_checked: Callable[[Admin], None],
        on_new_partitions: Changed,
        on_failure: Callable[[KafkaFailure], None],
    ) -> None:
        self._client, self._topics = client, list(topics)
        self._every_s, self._away_s = every_s, away_s
        self._on_checked, self._on_new_partitions, self._on_failure = on_checked, on_new_partitions, on_failure
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
                self._check(admin)
                answered = time.monotonic()
            except KafkaFailure as failure:
                if failure.kind is not Failure.AWAY:
                    self._on_failure(failure)
                    break
                if time.monotonic() - answered > self._away_s:
                    text = f"the cluster has not answered for {self._away_s:g} s: {failure}"
                    self._on_failure(KafkaFailure(Failure.AWAY, text))
                    break
                if admin is not None:
                    admin.close()
                    admin = None
            except Exception as problem:  # noqa: BLE001 - without the watch the source would wait forever
                self._on_failure(KafkaFailure(Failure.REFUSED, f"{type(problem).__name__}: {one_line(problem)}"))
                break
            self._closed.wait(self._every_s)
        if admin is not None:
            admin.close()

    def _check(self, admin: Admin) -> None:
        found = admin.topics([topic.name for topic in self._topics])
        for place, known in enumerate(self._topics):
            now = found.get(known.name)
            if now is None or now.id != known.id:
                what = "was deleted" if now is None else "was deleted and created again"
                raise KafkaFailure(Failure.REFUSED, f"topic {known.name!r} {what}: start over with --fresh")
            if now.partitions > known.partitions:
                self._on_new_partitions(admin, place, now.partitions)
                self._topics[place] = TopicLayout(known.name, known.id, now.partitions)
        self._on_checked(admin)
