/* Stable sorting by integers: the kernel of clonos_py/columns/ordering.py. */

#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define DIGIT_BITS 11
#define DIGIT_VALUES (1u << DIGIT_BITS)
#define MOST_DIGITS 3
/* Of 32 bits. */
/* Sorted by one digit if it has no more bits, and there are enough rows for so many counters. */
#define WIDE_DIGIT_BITS 16

static uint32_t bit_length(uint64_t value)
{
    return value == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(value);
}

/* Turns counts into the place of the first entry of each digit. Returns whether all entries have the same digit. */
static int start_places(uint32_t *counts, uint64_t digits, int64_t rows)
{
    uint32_t start = 0;
    int same = 0;
    for (uint64_t digit = 0; digit < digits; digit++) {
        uint32_t count = counts[digit];
        same |= count == (uint64_t)rows;
        counts[digit] = start;
        start += count;
    }
    return same;
}

static int64_t order_by_one_digit(const int64_t *values, int64_t rows, uint64_t least, uint32_t bits, int64_t *order)
{
    uint32_t *counts = calloc((size_t)1 << bits, sizeof(uint32_t));
    if (counts == NULL)
        return NO_MEMORY;
    for (int64_t row = 0; row < rows; row++)
        counts[(uint64_t)values[row] - least]++;
    start_places(counts, (uint64_t)1 << bits, rows);
    for (int64_t row = 0; row < rows; row++)
        order[counts[(uint64_t)values[row] - least]++] = row;
    free(counts);
    return 0;
}

/* Sorts 32 bits of the offsets to the least value, those from shift on, digit by digit. An entry has the bits, then the
 * row number. The rows are taken in the order of the lower bits, if there are any. */
static void order_by_digits(const int64_t *values, int64_t rows, uint64_t least, uint32_t shift, uint32_t bits,
                            uint64_t *entries, uint32_t (*counts)[DIGIT_VALUES], int64_t *order)
{
    uint32_t digits = (bits + DIGIT_BITS - 1) / DIGIT_BITS;
    uint64_t *from = entries, *to = entries + rows;
    memset(counts, 0, MOST_DIGITS * sizeof(*counts));
    for (int64_t at = 0; at < rows; at++) {
        int64_t row = shift == 0 ? at : order[at];
        uint64_t offset = ((uint64_t)values[row] - least) >> shift & 0xFFFFFFFFu;
        from[at] = offset << 32 | (uint64_t)row;
        for (uint32_t digit = 0; digit < digits; digit++)
            counts[digit][offset >> (digit * DIGIT_BITS) & (DIGIT_VALUES - 1)]++;
    }
    for (uint32_t digit = 0; digit < digits; digit++) {
        if (start_places(counts[digit], DIGIT_VALUES, rows))
            continue;
        for (int64_t at = 0; at < rows; at++)
            to[counts[digit][from[at] >> (32 + digit * DIGIT_BITS) & (DIGIT_VALUES - 1)]++] = from[at];
        uint64_t *sorted = to;
        to = from;
        from = sorted;
    }
    for (int64_t at = 0; at < rows; at++)
        order[at] = (int64_t)(from[at] & 0xFFFFFFFFu);
}

/* The row numbers in the order of their values; equal values keep the order of their rows. rows is at least 1. */
KERNEL int64_t clonos_stable_order(const int64_t *values, int64_t rows, int64_t *order)
{
    int64_t least = values[0], greatest = values[0];
    int sorted = 1;
    for (int64_t row = 1; row < rows; row++) {
        sorted &= values[row - 1] <= values[row];
        least = values[row] < least ? values[row] : least;
        greatest = values[row] > greatest ? values[row] : greatest;
    }
    if (sorted) {
        for (int64_t row = 0; row < rows; row++)
            order[row] = row;
        return 0;
    }
    uint32_t bits = bit_length((uint64_t)greatest - (uint64_t)least);
    if (bits <= WIDE_DIGIT_BITS && ((uint64_t)1 << bits) <= 2 * (uint64_t)rows)
        return order_by_one_digit(values, rows, (uint64_t)least, bits, order);
    uint32_t(*counts)[DIGIT_VALUES] = malloc(MOST_DIGITS * sizeof(*counts));
    uint64_t *entries = malloc(2 * (size_t)rows * sizeof(uint64_t));
    int64_t made = counts == NULL || entries == NULL ? NO_MEMORY : 0;
    for (uint32_t shift = 0; made == 0 && shift < bits; shift += 32)
        order_by_digits(values, rows, (uint64_t)least, shift, bits - shift < 32 ? bits - shift : 32, entries, counts, order);
    free(counts);
    free(entries);
    return made;
}
