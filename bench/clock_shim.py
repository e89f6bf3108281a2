"""Steps the time of day of a single process, by a small C library that is preloaded ahead of libc.

The library is compiled here. It adds an offset to the time of day that the Python interpreter reads. The offset is in a
file that is named after the process id. Other clocks do not change. Neither does the time of day that other libraries
of the process read: their waits until a time of day would end at the wrong moment.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_FOLDER = "SOAK_CLOCK_STEPS"
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 20000000LL
#define SECOND_NS 1000000000LL

static int (*real_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find_real(void) { real_clock = dlsym(RTLD_NEXT, "clock_gettime"); }

static long long now_ns(clockid_t clock) {
    struct timespec now;
    if (!real_clock) find_real();
    real_clock(clock, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* Looked up every now and then: the clock is stepped by writing the file under another name and renaming it. */
static long long offset_ns(void) {
    static long long offset, looked_ns;
    long long monotonic_ns = now_ns(CLOCK_MONOTONIC);
    if (monotonic_ns - __atomic_load_n(&looked_ns, __ATOMIC_RELAXED) > LOOK_NS) {
        __atomic_store_n(&looked_ns, monotonic_ns, __ATOMIC_RELAXED);
        const char *folder = getenv("SOAK_CLOCK_STEPS");
        char path[512];
        long long found;
        int saved = errno;
        if (folder && snprintf(path, sizeof path, "%s/%d", folder, (int)getpid()) < (int)sizeof path) {
            int file = open(path, O_RDONLY | O_CLOEXEC);
            if (file >= 0) {
                if (read(file, &found, sizeof found) == sizeof found)
                    __atomic_store_n(&offset, found, __ATOMIC_RELAXED);
                close(file);
            }
        }
        errno = saved;
    }
    return __atomic_load_n(&offset, __ATOMIC_RELAXED);
}

static int is_interpreter(void *caller) {
    Dl_info where;
    if (!dladdr(caller, &where) || !where.dli_fname) return 0;
    const char *slash = strrchr(where.dli_fname, '/');
    const char *name = slash ? slash + 1 : where.dli_fname;
    return !strncmp(name, "python", 6) || !strncmp(name, "libpython", 9);
}

static long long offset_for(void *caller) {
    long long offset = offset_ns();
    return offset && is_interpreter(caller) ? offset : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock) find_real();
    int result = real_clock(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) {
        long long shown_ns = now->tv_sec * SECOND_NS + now->tv_nsec + offset_for(__builtin_return_address(0));
        now->tv_sec = shown_ns / SECOND_NS;
        now->tv_nsec = shown_ns % SECOND_NS;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    long long shown_ns = now_ns(CLOCK_REALTIME) + offset_for(__builtin_return_address(0));
    now->tv_sec = shown_ns / SECOND_NS;
    now->tv_usec = shown_ns % SECOND_NS / 1000;
    return 0;
}

time_t time(time_t *now) {
    time_t shown = (now_ns(CLOCK_REALTIME) + offset_for(__builtin_return_address(0))) / SECOND_NS;
    if (now) *now = shown;
    return shown;
}
"""


class ClockSteps:
    """Steps the clocks of processes that were started within ``clock_steps``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def step(self, pid: int, seconds: float) -> None:
        """Sets the time of day of a process to the true one plus ``seconds``. Takes effect within 20 ms."""
        written = self._folder / f".{pid}"
        written.write_bytes(struct.pack("=q", int(seconds * 1e9)))
        os.replace(written, self._folder / str(pid))


@contextmanager
def clock_steps() -> Iterator[ClockSteps | None]:
    """Within the block every started process loads the library. Yields None if there is no C compiler, or if the
    interpreter's own waits use the time of day."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sysconfig.get_config_var("HAVE_SEM_CLOCKWAIT"):
        yield None
        return
    with TemporaryDirectory(prefix="clonos-clocks-") as folder:
        source, library = Path(folder) / "clock_shim.c", Path(folder) / "clock_shim.so"
        source.write_text(_SOURCE)
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            yield None
            return
        given = {"LD_PRELOAD": str(library), _FOLDER: folder}
        before = {name: os.environ.get(name) for name in given}
        os.environ.update(given)
        try:
            yield ClockSteps(Path(folder))
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
