"""Injects failures into brokers while a job runs."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from clonos_py.bench.kafka.cluster import BrokerCluster

_AWAY_S = (2.0, 8.0)
_STANDSTILL_S = (1.0, 6.0)


@dataclass
class Brokers:
    """Injects failures into the brokers of a cluster with proxies. Kills and stops wait until the broker runs again."""

    cluster: BrokerCluster
    random: random.Random

    def kill(self) -> None:
        """Kills a random broker, restarts it after some seconds, and waits until it accepts connections."""
        node = self.random.choice(self.cluster.nodes)
        node.kill()
        time.sleep(self.random.uniform(*_AWAY_S))
        node.start()
        node.wait()

    def stand_still(self) -> None:
        """Stops a random broker (SIGSTOP) for some seconds."""
        node = self.random.choice(self.cluster.nodes)
        with node.stopped():
            time.sleep(self.random.uniform(*_STANDSTILL_S))

    def cut(self) -> None:
        """For each broker, cuts either all its connections or its answers to the next one to three commits."""
        for node in self.cluster.nodes:
            assert node.proxy is not None
            if self.random.random() < 0.5:
                node.proxy.cut()
            else:
                node.proxy.cut_answers += self.random.randint(1, 3)
