/* Hashes of keys: the kernels of clonos_py/columns/keys.py. */

#include <string.h>

#include "kernels.h"

#define GOLDEN 0x9E3779B97F4A7C15u
#define COMBINE 0xD6E8FEB86659FD93u

static inline uint64_t mixed(uint64_t word)
{
    word += GOLDEN;
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
    word = (word ^ word >> 27) * 0x94D049BB133111EBu;
    return word ^ word >> 31;
}

/* Mixes words in place. */
KERNEL void clonos_mix(uint64_t *words, int64_t count)
{
    for (int64_t at = 0; at < count; at++)
        words[at] = mixed(words[at]);
}

/* Combines the hashes of the first columns with those of the next one, in place. */
KERNEL void clonos_combine(uint64_t *combined, const uint64_t *hashes, int64_t count)
{
    for (int64_t at = 0; at < count; at++)
        combined[at] = mixed(combined[at] * COMBINE + hashes[at]);
}

/* A word of up to 8 bytes, the first one lowest, padded with zeros. */
static inline uint64_t word_at(const uint8_t *bytes, uint64_t count)
{
    uint64_t word = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (count >= 8) {
        memcpy(&word, bytes, 8);
        return word;
    }
#endif
    for (uint64_t at = 0; at < count && at < 8; at++)
        word |= (uint64_t)bytes[at] << (8 * at);
    return word;
}

/* The hash of each value of a text or binary array: value i has the bytes from bounds[i] to bounds[i + 1]. Returns the
 * number of the first value that does not lie in the bytes, of which there are size, or count if there is none. */
KERNEL int64_t clonos_hash_bytes(const int64_t *bounds, int64_t count, const uint8_t *bytes, int64_t size,
                                 uint64_t *hashes)
{
    for (int64_t at = 0; at < count; at++) {
        if (bounds[at] < 0 || bounds[at + 1] < bounds[at] || bounds[at + 1] > size)
            return at;
        uint64_t length = (uint64_t)(bounds[at + 1] - bounds[at]), words = (length + 7) / 8, sum = words;
        for (uint64_t word = 0; word < words; word++)
            sum += mixed(word_at(bytes + bounds[at] + 8 * word, length - 8 * word) ^ word * COMBINE);
        hashes[at] = mixed(sum ^ length);
    }
    return count;
}
