/* Distinct values of groups: the kernel of clonos_py/columns/distinct.py. */

#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define MIX 0x9E3779B97F4A7C15u
#define OUT_OF_RANGE (-2)

/* Finds the first row of each pair of a group and a value, and counts the pairs of each group in counts. valid: a byte
 * for each row, or NULL; rows whose byte is 0 are left out. Returns how many pairs there are. */
static int64_t first_rows(const int64_t *ids, const int64_t *values, const uint8_t *valid, int64_t rows, int64_t size,
                          int64_t *counts, uint32_t *table, uint32_t bits, uint32_t *first)
{
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    int64_t pairs = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (valid != NULL && !valid[row])
            continue;
        int64_t id = ids[row], value = values[row];
        if (id < 0 || id >= size)
            return OUT_OF_RANGE;
        uint64_t at = (((uint64_t)value * MIX ^ (uint64_t)id) * MIX) >> (64 - bits);
        while (table[at] != 0 && (values[first[table[at] - 1]] != value || ids[first[table[at] - 1]] != id))
            at = (at + 1) & mask;
        if (table[at] != 0)
            continue;
        first[pairs++] = (uint32_t)row;
        table[at] = (uint32_t)pairs;
        counts[id]++;
    }
    return pairs;
}

/* The first row of each pair of a group and a value, by group, then in the order of rows. Those of a group are
 * kept[bounds[group]] up to kept[bounds[group + 1]]; bounds has size + 1 places. Returns how many there are, or -2 if an
 * id is not from 0 to size - 1. */
KERNEL int64_t clonos_distinct(const int64_t *ids, const int64_t *values, const uint8_t *valid, int64_t rows, int64_t size,
                               int64_t *kept, int64_t *bounds)
{
    uint32_t bits = 4;
    while (((uint64_t)1 << bits) < 2 * (uint64_t)rows)
        bits++;
    uint32_t *table = calloc((size_t)1 << bits, sizeof(uint32_t));
    uint32_t *first = malloc(((size_t)rows + 1) * sizeof(uint32_t));
    int64_t pairs = NO_MEMORY;
    if (table != NULL && first != NULL) {
        memset(bounds, 0, ((size_t)size + 1) * sizeof(int64_t));
        pairs = first_rows(ids, values, valid, rows, size, bounds, table, bits, first);
    }
    if (pairs >= 0) {
        int64_t start = 0;
        for (int64_t id = 0; id < size; id++) {
            int64_t count = bounds[id];
            bounds[id] = start;
            start += count;
        }
        for (int64_t pair = 0; pair < pairs; pair++)
            kept[bounds[ids[first[pair]]]++] = first[pair];
        /* Each bound is the end of its group now, which is the start of the next one. */
        for (int64_t id = size; id > 0; id--)
            bounds[id] = bounds[id - 1];
        bounds[0] = 0;
    }
    free(table);
    free(first);
    return pairs;
}
