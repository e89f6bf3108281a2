/* A hash index of rows: the kernel of clonos_py/columns/hash_index.py.
 *
 * A key is the upper half of a hash. Each key that has rows takes one slot of a table. Its rows are a circular list in
 * ascending order: the slot holds the last row, and the last row is followed by the first. So a row is appended, and all
 * rows are visited in order, without a search. Rows that are no longer kept are unlinked when a call meets them.
 *
 * A state that expires drops its first rows again and again. They stay in their places and count as rows that are not
 * kept, until they are a quarter of all: then the table is made again. Callers number rows from the first that is there.
 *
 * The table is one of extendible hashing: a directory of segments, each an open-addressing table with linear probing. A
 * segment that is too full is split into two of the same size. So no call ever moves more than a segment at a time, and
 * the table is at least three eighths full once it has several segments. The first segment begins small and doubles.
 * Upper bits of a key's place choose the segment, lower bits the slot. */

#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define SEGMENT_BITS 13
#define SEGMENT_SLOTS (1u << SEGMENT_BITS)
#define FIRST_SLOTS 16u
#define MAX_DEPTH (32 - SEGMENT_BITS)
#define MIX 0x9E3779B1u

#define EMPTY 0xFFFFFFFFu
/* In the place of a last row: the slot was never used. */
#define NO_ROWS 0xFFFFFFFEu
/* In the place of a last row: the slot has a key without rows. */
#define MAX_ROWS 0xFFFFFFFEu

typedef struct {
    uint32_t key;
    uint32_t last;
} Slot;

typedef struct {
    uint32_t used;
    uint32_t depth;
    Slot slots[];
} Segment;

typedef struct {
    Segment **directory;
    uint32_t depth;
    uint32_t mask;
    /* Of the slots of every segment. */
    uint32_t *keys;
    uint32_t *next;
    uint64_t rows;
    uint64_t room;
    uint64_t first;
    /* Of the rows, so many at the start are dropped. */
} Index;

/* kept: a byte for each row from the first that is there, or NULL. */
static int is_kept(const Index *index, uint32_t row, const uint8_t *kept)
{
    return row >= index->first && (kept == NULL || kept[row - index->first]);
}

static uint32_t place_of(uint32_t key)
{
    return key * MIX;
}

static Segment **entry_of(const Index *index, uint32_t place)
{
    return &index->directory[(uint64_t)place >> (32 - index->depth)];
}

static Segment *segment_new(uint32_t slots, uint32_t depth)
{
    Segment *segment = malloc(sizeof(Segment) + slots * sizeof(Slot));
    if (segment != NULL) {
        segment->used = 0;
        segment->depth = depth;
        memset(segment->slots, 0xFF, slots * sizeof(Slot));
    }
    return segment;
}

/* The slot of a key: one that holds it, or the empty one where it belongs; NULL if it is absent and none is empty. */
static Slot *slot_of(Segment *segment, uint32_t mask, uint32_t key, uint32_t place)
{
    for (uint32_t tried = 0; tried <= mask; tried++) {
        Slot *slot = &segment->slots[(place + tried) & mask];
        if (slot->last == EMPTY || slot->key == key)
            return slot;
    }
    return NULL;
}

static Slot *find(const Index *index, uint32_t key)
{
    uint32_t place = place_of(key);
    return slot_of(*entry_of(index, place), index->mask, key, place);
}

/* Copies the slots that have rows to the segments in which they belong. */
static void redistribute(const Segment *from, uint32_t slots, Segment *zero, Segment *one, uint32_t mask)
{
    uint32_t shift = 31 - from->depth;
    for (uint32_t at = 0; at < slots; at++) {
        const Slot *slot = &from->slots[at];
        if (slot->last == EMPTY || slot->last == NO_ROWS)
            continue;
        uint32_t place = place_of(slot->key);
        Segment *to = one != NULL && (place >> shift & 1) ? one : zero;
        *slot_of(to, mask, slot->key, place) = *slot;
        to->used++;
    }
}

static int double_first(Index *index)
{
    Segment *old = index->directory[0];
    uint32_t mask = 2 * index->mask + 1;
    Segment *grown = segment_new(mask + 1, 0);
    if (grown == NULL)
        return NO_MEMORY;
    redistribute(old, index->mask + 1, grown, NULL, mask);
    index->directory[0] = grown;
    index->mask = mask;
    free(old);
    return 0;
}

static int double_directory(Index *index)
{
    uint64_t entries = (uint64_t)1 << index->depth;
    Segment **grown = malloc(2 * entries * sizeof(Segment *));
    if (grown == NULL)
        return NO_MEMORY;
    for (uint64_t at = 0; at < entries; at++)
        grown[2 * at] = grown[2 * at + 1] = index->directory[at];
    free(index->directory);
    index->directory = grown;
    index->depth++;
    return 0;
}

static int split(Index *index, uint32_t place)
{
    Segment *old = *entry_of(index, place);
    if (old->depth == index->depth && double_directory(index) != 0)
        return NO_MEMORY;
    Segment *zero = segment_new(SEGMENT_SLOTS, old->depth + 1), *one = segment_new(SEGMENT_SLOTS, old->depth + 1);
    if (zero == NULL || one == NULL) {
        free(zero);
        free(one);
        return NO_MEMORY;
    }
    redistribute(old, SEGMENT_SLOTS, zero, one, index->mask);
    uint64_t entries = (uint64_t)1 << (index->depth - old->depth);
    uint64_t first = (uint64_t)place >> (32 - index->depth) & ~(entries - 1);
    for (uint64_t at = 0; at < entries; at++)
        index->directory[first + at] = at < entries / 2 ? zero : one;
    free(old);
    return 0;
}

/* Makes room in a segment that is more than three quarters full, if it can have more room. */
static int relieve(Index *index, uint32_t place)
{
    if (index->mask + 1 < SEGMENT_SLOTS)
        return double_first(index);
    return (*entry_of(index, place))->depth < MAX_DEPTH ? split(index, place) : 0;
}

static int reserve(Index *index, uint64_t rows)
{
    if (rows <= index->room)
        return 0;
    uint64_t room = 2 * index->room > rows ? 2 * index->room : rows;
    uint32_t *keys = realloc(index->keys, room * sizeof(uint32_t));
    if (keys == NULL)
        return NO_MEMORY;
    index->keys = keys;
    uint32_t *next = realloc(index->next, room * sizeof(uint32_t));
    if (next == NULL)
        return NO_MEMORY;
    index->next = next;
    index->room = room;
    return 0;
}

/* How many entries of the directory lead to a segment. */
static uint64_t entries_to(const Index *index, const Segment *segment)
{
    return (uint64_t)1 << (index->depth - segment->depth);
}

static void free_segments(Index *index)
{
    uint64_t entries = (uint64_t)1 << index->depth;
    for (uint64_t at = 0; at < entries;) {
        Segment *segment = index->directory[at];
        at += entries_to(index, segment);
        free(segment);
    }
}

/* Frees all segments but a new first one. */
static int start_again(Index *index)
{
    Segment *first = segment_new(FIRST_SLOTS, 0);
    if (first == NULL)
        return NO_MEMORY;
    free_segments(index);
    index->depth = 0;
    index->mask = FIRST_SLOTS - 1;
    index->directory[0] = first;
    return 0;
}

/* Drops all keys. Keeps the segments if rows so many as given will fill an eighth of them: memory that is freed and
 * allocated again costs more than the work with it. */
static int clear(Index *index, uint64_t rows)
{
    uint64_t entries = (uint64_t)1 << index->depth, slots = 0;
    for (uint64_t at = 0; at < entries; at += entries_to(index, index->directory[at]))
        slots += (uint64_t)index->mask + 1;
    if (rows < slots / 8)
        return start_again(index);
    for (uint64_t at = 0; at < entries; at += entries_to(index, index->directory[at])) {
        Segment *segment = index->directory[at];
        segment->used = 0;
        memset(segment->slots, 0xFF, ((size_t)index->mask + 1) * sizeof(Slot));
    }
    return 0;
}

/* Appends a row to the list of a slot that has rows, after those at its beginning that are not kept are unlinked. */
static void link_row(const Index *index, Slot *slot, uint32_t row, const uint8_t *kept)
{
    uint32_t *next = index->next;
    uint32_t last = slot->last, first = next[last];
    while (!is_kept(index, first, kept)) {
        if (first == last) {
            next[row] = row;
            slot->last = row;
            return;
        }
        first = next[first];
    }
    next[last] = row;
    next[row] = first;
    slot->last = row;
}

/* Adds one row, whose key is in index->keys. */
static int add(Index *index, uint32_t row, const uint8_t *kept)
{
    uint32_t key = index->keys[row], place = place_of(key);
    Segment *segment = *entry_of(index, place);
    Slot *slot = slot_of(segment, index->mask, key, place);
    if (slot == NULL)
        return NO_MEMORY;
    if (slot->last != EMPTY && slot->last != NO_ROWS) {
        link_row(index, slot, row, kept);
        return 0;
    }
    segment->used += slot->last == EMPTY;
    slot->key = key;
    slot->last = row;
    index->next[row] = row;
    uint64_t slots = (uint64_t)index->mask + 1;
    /* A segment that cannot be relieved now still takes keys until it is full. */
    if (segment->used > slots - slots / 4)
        relieve(index, place);
    return 0;
}

/* Adds the rows from index->rows up to a number; their keys are in index->keys. */
static int add_up_to(Index *index, uint64_t stop, const uint8_t *kept)
{
    while (index->rows < stop) {
        uint64_t start = index->rows, end = stop - start < BLOCK ? stop : start + BLOCK;
        for (uint64_t row = start; row < end; row++) {
            uint32_t place = place_of(index->keys[row]);
            fetch(&(*entry_of(index, place))->slots[place & index->mask]);
        }
        for (uint64_t row = start; row < end; row++) {
            const Slot *slot = find(index, index->keys[row]);
            if (slot != NULL && slot->last < index->rows) {
                fetch(&index->next[slot->last]);
                if (kept != NULL && slot->last >= index->first)
                    fetch(&kept[slot->last - index->first]);
            }
        }
        for (uint64_t row = start; row < end; row++) {
            if (add(index, (uint32_t)row, kept) != 0)
                return NO_MEMORY;
            index->rows = row + 1;
        }
    }
    return 0;
}

/* Moves the keys of the rows that stay to the start, and makes the table again. keep: a byte for each row from the
 * first that is there, or NULL for all of them; stop: how many these are. */
static int64_t make_again(Index *index, const uint8_t *keep, uint64_t stop)
{
    uint64_t rows = index->rows, first = index->first;
    if (clear(index, stop) != 0)
        return NO_MEMORY;
    stop = 0;
    for (uint64_t row = first; row < rows; row++) {
        index->keys[stop] = index->keys[row];
        stop += keep == NULL || keep[row - first] != 0;
    }
    index->rows = index->first = 0;
    return add_up_to(index, stop, NULL);
}

KERNEL void *clonos_index_new(void)
{
    Index *index = calloc(1, sizeof(Index));
    if (index == NULL)
        return NULL;
    index->directory = malloc(sizeof(Segment *));
    index->mask = FIRST_SLOTS - 1;
    Segment *first = segment_new(FIRST_SLOTS, 0);
    if (index->directory == NULL || first == NULL) {
        free(index->directory);
        free(first);
        free(index);
        return NULL;
    }
    index->directory[0] = first;
    return index;
}

KERNEL void clonos_index_free(Index *index)
{
    if (index == NULL)
        return;
    free_segments(index);
    free(index->directory);
    free(index->keys);
    free(index->next);
    free(index);
}

/* Adds rows with these hashes. kept: a byte for each row, the new ones included, or NULL. Rows whose byte is 0 may be
 * dropped. */
KERNEL int64_t clonos_index_append(Index *index, const uint64_t *hashes, int64_t count, const uint8_t *kept)
{
    if (index->rows + (uint64_t)count > MAX_ROWS && index->first
        && make_again(index, NULL, index->rows - index->first) != 0)
        return NO_MEMORY;
    uint64_t stop = index->rows + (uint64_t)count;
    if (stop > MAX_ROWS || reserve(index, stop) != 0)
        return NO_MEMORY;
    for (int64_t at = 0; at < count; at++)
        index->keys[index->rows + (uint64_t)at] = (uint32_t)(hashes[at] >> 32);
    return add_up_to(index, stop, kept);
}

/* The bytes that the index takes. */
KERNEL int64_t clonos_index_bytes(const Index *index)
{
    uint64_t entries = (uint64_t)1 << index->depth, bytes = sizeof(Index) + entries * sizeof(Segment *);
    for (uint64_t at = 0; at < entries;) {
        at += entries_to(index, index->directory[at]);
        bytes += sizeof(Segment) + ((uint64_t)index->mask + 1) * sizeof(Slot);
    }
    return (int64_t)(bytes + 2 * index->room * sizeof(uint32_t));
}

/* Writes the kept rows of a slot in order, as far as there is capacity, and unlinks the others. Returns how many are
 * kept. */
static int64_t kept_rows(const Index *index, Slot *slot, const uint8_t *kept, int64_t *rows, int64_t capacity)
{
    uint32_t *next = index->next;
    uint32_t tail = slot->last, last = tail, row = next[tail];
    int64_t found = 0;
    for (;;) {
        uint32_t following = next[row];
        if (is_kept(index, row, kept)) {
            if (found < capacity)
                rows[found] = row - (int64_t)index->first;
            found++;
            last = row;
        } else {
            next[last] = following;
            if (row == tail)
                slot->last = last == row ? NO_ROWS : last;
        }
        if (row == tail)
            return found;
        row = following;
    }
}

/* Pairs (position in hashes, row with the same key), in the order of positions, then of rows; of kept rows only, unless
 * kept is NULL. Returns how many there are, of which the first capacity are written. */
KERNEL int64_t clonos_index_probe(Index *index, const uint64_t *hashes, int64_t count, const uint8_t *kept,
                                  int64_t *positions, int64_t *rows, int64_t capacity)
{
    Slot *slots[BLOCK];
    int64_t pairs = 0;
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t size = count - start < BLOCK ? count - start : BLOCK;
        for (int64_t at = 0; at < size; at++) {
            uint32_t place = place_of((uint32_t)(hashes[start + at] >> 32));
            fetch(&(*entry_of(index, place))->slots[place & index->mask]);
        }
        for (int64_t at = 0; at < size; at++) {
            Slot *slot = find(index, (uint32_t)(hashes[start + at] >> 32));
            slots[at] = slot != NULL && slot->last < index->rows ? slot : NULL;
            if (slots[at] != NULL) {
                fetch(&index->next[slot->last]);
                if (kept != NULL && slot->last >= index->first)
                    fetch(&kept[slot->last - index->first]);
            }
        }
        for (int64_t at = 0; at < size; at++) {
            if (slots[at] == NULL || slots[at]->last >= index->rows)
                continue;
            int64_t left = pairs < capacity ? capacity - pairs : 0;
            int64_t found = kept_rows(index, slots[at], kept, rows + (left ? pairs : 0), left);
            for (int64_t pair = 0; pair < found && pair < left; pair++)
                positions[pairs + pair] = start + at;
            pairs += found;
        }
    }
    return pairs;
}

/* Drops the rows whose byte is 0, and renumbers the others from 0 in order. keep: a byte for each row. */
KERNEL int64_t clonos_index_compact(Index *index, const uint8_t *keep)
{
    uint64_t rows = index->rows - index->first, stop = 0;
    for (uint64_t row = 0; row < rows; row++)
        stop += keep[row] != 0;
    return make_again(index, keep, stop);
}

/* Drops the first rows, so many of them, and renumbers the others from 0. */
KERNEL int64_t clonos_index_drop_first(Index *index, uint64_t count)
{
    index->first += count;
    uint64_t rows = index->rows - index->first;
    return index->first > rows / 4 ? make_again(index, NULL, rows) : 0;
}

/* Drops all rows but the first ones. */
KERNEL int64_t clonos_index_truncate(Index *index, uint64_t rows)
{
    rows += index->first;
    if (rows >= index->rows)
        return 0;
    for (uint64_t row = rows; row < index->rows; row++) {
        Slot *slot = find(index, index->keys[row]);
        if (slot == NULL || slot->last >= index->rows || slot->last < rows)
            continue;
        uint32_t first = index->next[slot->last];
        if (first >= rows) {
            slot->last = NO_ROWS;
            continue;
        }
        uint32_t last = first;
        while (index->next[last] < rows && index->next[last] > last)
            last = index->next[last];
        index->next[last] = first;
        slot->last = last;
    }
    index->rows = rows;
    return 0;
}
