/* Rows of several chunks put together: the kernels of clonos_py/columns/gathering.py.
 *
 * A row is given by a place: the number of its chunk in the upper 32 bits, its row there in the lower ones. Callers have
 * checked that both are in range. */

#include <string.h>

#include "kernels.h"

/* How many rows ahead memory is requested. */
#define AHEAD 16

static inline uint64_t chunk_of(uint64_t place)
{
    return place >> 32;
}

static inline uint64_t row_of(uint64_t place)
{
    return place & 0xFFFFFFFFu;
}

/* Finds the places of rows that are numbered through all chunks: chunk i has those from starts[i] up to starts[i + 1].
 * Returns the index of the first number that is in no chunk, or count if there is none. */
KERNEL int64_t clonos_places(const int64_t *starts, int64_t chunks, const int64_t *numbers, int64_t count,
                             uint64_t *places)
{
    int64_t chunk = 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t number = numbers[at];
        if (number < 0 || number >= starts[chunks])
            return at;
        if (number < starts[chunk] || number >= starts[chunk + 1]) {
            int64_t low = 0, high = chunks;
            while (high - low > 1) {
                int64_t middle = (low + high) / 2;
                if (starts[middle] <= number)
                    low = middle;
                else
                    high = middle;
            }
            chunk = low;
        }
        places[at] = (uint64_t)chunk << 32 | (uint64_t)(number - starts[chunk]);
    }
    return count;
}

static inline int is_set(const uint8_t *bits, int64_t at)
{
    return bits == NULL || (bits[at >> 3] >> (at & 7) & 1);
}

/* Values need not be aligned. The value of a null is 0. */
#define GATHER(name, type)                                                                                             \
    static void name(const uint8_t *const *chunks, const uint64_t *places, int64_t count, const uint8_t *valid,        \
                     type *gathered)                                                                                   \
    {                                                                                                                  \
        for (int64_t at = 0; at < count; at++) {                                                                       \
            if (at + AHEAD < count)                                                                                    \
                fetch(chunks[chunk_of(places[at + AHEAD])] + row_of(places[at + AHEAD]) * sizeof(type));               \
            if (is_set(valid, at))                                                                                     \
                memcpy(&gathered[at], chunks[chunk_of(places[at])] + row_of(places[at]) * sizeof(type), sizeof(type)); \
            else                                                                                                       \
                memset(&gathered[at], 0, sizeof(type));                                                                \
        }                                                                                                              \
    }

typedef struct {
    uint64_t words[2];
} Wide;

GATHER(gather_8, uint8_t)
GATHER(gather_16, uint16_t)
GATHER(gather_32, uint32_t)
GATHER(gather_64, uint64_t)
GATHER(gather_128, Wide)

/* Copies values of 1, 2, 4, 8 or 16 bytes. chunks: where the first value of each chunk lies. valid: a bit for each
 * gathered value, or NULL where none is null. Returns 0, or -1 for another width. */
KERNEL int64_t clonos_gather_values(const uint8_t *const *chunks, const uint64_t *places, int64_t count,
                                    const uint8_t *valid, int64_t width, void *gathered)
{
    switch (width) {
    case 1:
        gather_8(chunks, places, count, valid, gathered);
        return 0;
    case 2:
        gather_16(chunks, places, count, valid, gathered);
        return 0;
    case 4:
        gather_32(chunks, places, count, valid, gathered);
        return 0;
    case 8:
        gather_64(chunks, places, count, valid, gathered);
        return 0;
    case 16:
        gather_128(chunks, places, count, valid, gathered);
        return 0;
    default:
        return -1;
    }
}

/* Copies bits to a bitmap that is all zero. bits: a bitmap of each chunk, or NULL where all bits are set; first: the bit
 * of each chunk's first row. Returns how many bits are not set. */
KERNEL int64_t clonos_gather_bits(const uint8_t *const *bits, const int64_t *first, const uint64_t *places, int64_t count,
                                  uint8_t *gathered)
{
    int64_t zeros = 0;
    for (int64_t at = 0; at < count; at++) {
        uint64_t chunk = chunk_of(places[at]);
        if (is_set(bits[chunk], first[chunk] + (int64_t)row_of(places[at])))
            gathered[at >> 3] = (uint8_t)(gathered[at >> 3] | 1u << (at & 7));
        else
            zeros++;
    }
    return zeros;
}

/* Where a text begins and ends in the bytes of its chunk. */
typedef struct {
    int32_t start;
    int32_t stop;
} Bounds;

static inline Bounds bounds_at(const uint8_t *const *bounds, uint64_t place)
{
    Bounds found;
    memcpy(&found, bounds[chunk_of(place)] + row_of(place) * sizeof(int32_t), sizeof(found));
    return found;
}

/* Writes the offsets of gathered texts, from 0; those of a null are equal. bounds: by chunk, the 32-bit offsets of its
 * texts; sizes: how many bytes it has. Returns how many bytes all texts have, which may be more than offsets of 32 bits
 * can say; -1 if a text does not lie in the bytes of its chunk. */
KERNEL int64_t clonos_gather_bounds(const uint8_t *const *bounds, const int64_t *sizes, const uint64_t *places,
                                    int64_t count, const uint8_t *valid, int32_t *gathered)
{
    int64_t total = 0;
    for (int64_t at = 0; at < count; at++) {
        if (at + AHEAD < count)
            fetch(bounds[chunk_of(places[at + AHEAD])] + row_of(places[at + AHEAD]) * sizeof(int32_t));
        Bounds of = bounds_at(bounds, places[at]);
        gathered[at] = (int32_t)(uint32_t)total;
        if (!is_set(valid, at))
            continue;
        if (of.start < 0 || of.stop < of.start || of.stop > sizes[chunk_of(places[at])])
            return -1;
        total += of.stop - of.start;
    }
    gathered[count] = (int32_t)(uint32_t)total;
    return total;
}

/* Copies the bytes of texts, whose gathered offsets are known. */
KERNEL void clonos_gather_bytes(const uint8_t *const *bounds, const uint8_t *const *bytes, const uint64_t *places,
                                int64_t count, const int32_t *gathered, uint8_t *copied)
{
    for (int64_t at = 0; at < count; at++) {
        if (at + AHEAD < count)
            fetch(bytes[chunk_of(places[at + AHEAD])] + bounds_at(bounds, places[at + AHEAD]).start);
        int64_t length = gathered[at + 1] - gathered[at];
        if (length > 0)
            memcpy(copied + gathered[at], bytes[chunk_of(places[at])] + bounds_at(bounds, places[at]).start,
                   (size_t)length);
    }
}
