/* The version of the library: a digest of all sources, which the build passes. A library of other sources is not used. */

#include "kernels.h"

KERNEL uint64_t clonos_kernels_version(void)
{
    return CLONOS_KERNELS_VERSION;
}
