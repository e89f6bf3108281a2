/* What all kernels share. They are plain C without Python: callers pass pointers to contiguous arrays and their lengths,
 * and have checked both. Nothing here allocates for longer than a call, but for objects with functions _new and _free. */

#ifndef CLONOS_KERNELS_H
#define CLONOS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define KERNEL __attribute__((visibility("default")))

#define NO_MEMORY (-1)
/* The result of a kernel that could not allocate. */

/* How many rows a kernel looks up at a time. It requests the memory of all of them from the processor, then uses it:
 * so it waits for memory once for all of them, and not for each. */
#define BLOCK 32

static inline void fetch(const void *place)
{
    __builtin_prefetch(place);
}

#endif
