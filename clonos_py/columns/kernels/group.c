/* Numbers for equal integers: the kernel of clonos_py/columns/grouping.py. */

#include <stdlib.h>

#include "kernels.h"

#define MIX 0x9E3779B97F4A7C15u

/* The integers: those of one array, or of two that are combined as digits of base size. */
typedef struct {
    const int64_t *high;
    const int64_t *low;
    int64_t size;
} Values;

static inline int64_t value_at(const Values *values, int64_t row)
{
    if (values->low == NULL)
        return values->high[row];
    return (int64_t)((uint64_t)values->high[row] * (uint64_t)values->size + (uint64_t)values->low[row]);
}

/* Numbers in the order of the values, by a table with a place for every value of the range. */
static int64_t number_by_offset(const Values *values, int64_t rows, int64_t least, uint64_t range, int64_t *ids,
                                int64_t *first)
{
    uint32_t *table = calloc(range, sizeof(uint32_t));
    if (table == NULL)
        return NO_MEMORY;
    for (int64_t row = 0; row < rows; row++) {
        uint64_t at = (uint64_t)value_at(values, row) - (uint64_t)least;
        ids[row] = (int64_t)at;
        if (table[at] == 0)
            table[at] = (uint32_t)row + 1;
    }
    int64_t size = 0;
    for (uint64_t at = 0; at < range; at++) {
        if (table[at] == 0)
            continue;
        first[size] = table[at] - 1;
        table[at] = (uint32_t)size++;
    }
    for (int64_t row = 0; row < rows; row++)
        ids[row] = table[ids[row]];
    free(table);
    return size;
}

/* Numbers in the order of first appearance, by a hash table. */
static int64_t number_by_hash(const Values *values, int64_t rows, int64_t *ids, int64_t *first)
{
    uint32_t bits = 4;
    while (((uint64_t)1 << bits) < 2 * (uint64_t)rows)
        bits++;
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint32_t *table = calloc(mask + 1, sizeof(uint32_t));
    if (table == NULL)
        return NO_MEMORY;
    int64_t size = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t value = value_at(values, row);
        uint64_t at = ((uint64_t)value * MIX) >> (64 - bits);
        while (table[at] != 0 && value_at(values, first[table[at] - 1]) != value)
            at = (at + 1) & mask;
        if (table[at] == 0) {
            first[size++] = row;
            table[at] = (uint32_t)size;
        }
        ids[row] = table[at] - 1;
    }
    free(table);
    return size;
}

/* Numbers equal integers: ids[row] is that of a row, first[number] the first row that has it. If the range of the
 * integers has at most 4 * rows + spare values, the numbers are in their order, else in that of first appearance. With
 * low an integer is high * size + low. Returns how many numbers there are. rows is at least 1. */
KERNEL int64_t clonos_group(const int64_t *high, const int64_t *low, int64_t size, int64_t rows, int64_t spare,
                            int64_t *ids, int64_t *first)
{
    Values values = {high, low, size};
    int64_t least = value_at(&values, 0), greatest = least;
    for (int64_t row = 1; row < rows; row++) {
        int64_t value = value_at(&values, row);
        least = value < least ? value : least;
        greatest = value > greatest ? value : greatest;
    }
    uint64_t distance = (uint64_t)greatest - (uint64_t)least;
    if (distance < 4 * (uint64_t)rows + (uint64_t)spare)
        return number_by_offset(&values, rows, least, distance + 1, ids, first);
    return number_by_hash(&values, rows, ids, first);
}
