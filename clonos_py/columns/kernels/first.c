/* The first rows of groups: the kernel of clonos_py/columns/first_in_groups.py. */

#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define OUT_OF_RANGE (-2)

static int is_before(const int64_t *const *keys, int64_t key_count, int64_t row, int64_t other)
{
    for (int64_t key = 0; key < key_count; key++) {
        int64_t one = keys[key][row], two = keys[key][other];
        if (one != two)
            return one < two;
    }
    return row < other;
}

/* Marks the rows that are among the first n of their group, in the order of keys, then of rows; n is at least 1. first:
 * a byte for each row. Returns 0, or -2 if a group is not from 0 to size - 1.
 *
 * Each group has a list of its first rows so far, in order. Most rows of a long group are behind the last one. */
KERNEL int64_t clonos_first(const int64_t *groups, int64_t rows, int64_t size, const int64_t *const *keys,
                            int64_t key_count, int64_t n, uint8_t *first)
{
    uint32_t *lists = malloc(((size_t)size * (size_t)n + 1) * sizeof(uint32_t));
    uint32_t *counts = calloc((size_t)size + 1, sizeof(uint32_t));
    int64_t result = lists == NULL || counts == NULL ? NO_MEMORY : 0;
    for (int64_t row = 0; row < rows && result == 0; row++) {
        int64_t group = groups[row];
        if (group < 0 || group >= size) {
            result = OUT_OF_RANGE;
            break;
        }
        uint32_t *list = lists + group * n;
        int64_t count = counts[group], place = count;
        while (place > 0 && is_before(keys, key_count, row, list[place - 1]))
            place--;
        if (place == n)
            continue;
        int64_t moved = (count < n ? count : n - 1) - place;
        memmove(list + place + 1, list + place, (size_t)moved * sizeof(uint32_t));
        list[place] = (uint32_t)row;
        counts[group] += count < n;
    }
    if (result == 0) {
        memset(first, 0, (size_t)rows);
        for (int64_t group = 0; group < size; group++)
            for (uint32_t at = 0; at < counts[group]; at++)
                first[lists[group * n + at]] = 1;
    }
    free(lists);
    free(counts);
    return result;
}
