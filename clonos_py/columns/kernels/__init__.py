"""Native kernels: the work of a few columns functions in C, several times as fast as in NumPy.

``make setup`` and the build of a wheel compile the sources here to one library (``hatch_build.py``), without Python's
headers. ``library`` loads it with ctypes if it fits. Every kernel has a form in NumPy with the same results, which runs
where there is no library; nothing that is stored, sent or replayed depends on which of both runs.
"""
