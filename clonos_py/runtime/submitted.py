"""Runs inside of a job that ``ray job submit`` has given to a Ray cluster.

Ray starts its command on the head with the address of the cluster and a runtime environment in variables. A local Ray,
which a run would start elsewhere, does not have the files of that environment.
"""

from __future__ import annotations

import os
from dataclasses import replace

from clonos_py.settings.definitions import Runtime, Settings

_SUBMITTED, _ADDRESS = "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_ADDRESS"


def on_its_cluster(settings: Settings) -> Settings:
    """The settings, with the cluster of the submitted job that this process belongs to, unless they name one."""
    address = os.environ.get(_ADDRESS)
    if not address or _SUBMITTED not in os.environ or settings.address or settings.runtime is not Runtime.RAY:
        return settings
    return replace(settings, address=address)
