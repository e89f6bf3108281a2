"""Sources and sinks, as users name them in a job."""

from clonos_py.connectors.blackhole import BlackholeSink
from clonos_py.connectors.console import PrintSink
from clonos_py.connectors.digests import DigestSink
from clonos_py.connectors.files import FileSink, FileSource, read_results
from clonos_py.connectors.memory import MemorySink, MemorySource
from clonos_py.connectors.upserts import UpsertFileSink, UpsertMemorySink

__all__ = [
    "BlackholeSink",
    "DigestSink",
    "FileSink",
    "FileSource",
    "MemorySink",
    "MemorySource",
    "PrintSink",
    "UpsertFileSink",
    "UpsertMemorySink",
    "read_results",
]
