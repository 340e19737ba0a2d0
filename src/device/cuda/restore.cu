/* Interleaved matrices back to the file's layout. A thread block takes a run of file blocks of one group of rows: it
 * reads them as they are stored, all of them at once, sorts them by rows in shared memory, and writes each row's run. In
 * shared memory a row begins at the same place of 16 bytes as in its target, so that it leaves in words of 16. */
#include "device/cuda/restore.h"
#include "device/cuda/row.cuh"

/* One run of the units of a type's block. */
template <int TYPE, int RUN> struct units;
#define RUNS(name, number, log2, bytes, fold, at0, count0, size0, at1, count1, size1)                        \
    template <> struct units<MO_##name, 0> {                                                                 \
        enum { AT = at0, COUNT = count0, SIZE = size0 };                                                     \
    };                                                                                                       \
    template <> struct units<MO_##name, 1> {                                                                 \
        enum { AT = at1, COUNT = count1, SIZE = size1 };                                                     \
    };
MO_QUANTIZED_FORMATS(RUNS)
#undef RUNS

/* A unit of two neighbouring rows. */
template <int SIZE> struct pair;
template <> struct pair<1> {
    typedef uint8_t one;
    typedef uchar2 both;
};
template <> struct pair<2> {
    typedef uint16_t one;
    typedef ushort2 both;
};
template <> struct pair<4> {
    typedef uint32_t one;
    typedef uint2 both;
};

/* What a thread block works on. */
typedef struct tile {
    const uint8_t *from; /* the first of its file blocks, of all rows */
    uint8_t *to;         /* the same, of the first row */
    int32_t blocks;      /* of the file */
    int32_t row_bytes;
    int32_t pitch; /* between rows in shared memory */
    int32_t group, half_log2;
} tile;

/* Where a row begins in shared memory. */
static __device__ __forceinline__ int place_of(const tile &t, int row)
{
    return row * t.pitch + (int)(((uint32_t)(uintptr_t)t.to + (uint32_t)row * (uint32_t)t.row_bytes) & 15);
}

/* The last bits of a place say in what pieces a unit may be written there. */
static __device__ __forceinline__ void put(uint8_t *at, uint32_t value)
{
    if ((uintptr_t)at & 1) {
        at[0] = (uint8_t)value;
        *(uint16_t *)(at + 1) = (uint16_t)(value >> 8);
        at[3] = (uint8_t)(value >> 24);
    } else if ((uintptr_t)at & 2) {
        *(uint16_t *)at = (uint16_t)value;
        *(uint16_t *)(at + 2) = (uint16_t)(value >> 16);
    } else {
        *(uint32_t *)at = value;
    }
}

static __device__ __forceinline__ void put(uint8_t *at, uint16_t value)
{
    if ((uintptr_t)at & 1) {
        at[0] = (uint8_t)value;
        at[1] = (uint8_t)(value >> 8);
    } else {
        *(uint16_t *)at = value;
    }
}

static __device__ __forceinline__ void put(uint8_t *at, uint8_t value)
{
    *at = value;
}

/* The pairs of one run that a thread carries. Pair i: rows 2 * (i mod group / 2) and the next, unit i / (group / 2). */
template <int TYPE, int RUN> struct load {
    typedef units<TYPE, RUN> U;
    typedef typename pair<U::SIZE>::both both;
    static constexpr int BYTES = mo_format_bytes(TYPE);
    static constexpr int MOST = MO_RESTORE_TILE / BYTES * U::COUNT / 2; /* pairs of a tile */
    static constexpr int EACH = (MOST + MO_RESTORE_THREADS - 1) / MO_RESTORE_THREADS;
    both v[EACH];

    __device__ __forceinline__ void read(const tile &t)
    {
        const int pairs = (t.blocks * U::COUNT) << t.half_log2;
        MO_UNROLL(EACH)
        for (int k = 0; k < EACH; k++) {
            const int i = threadIdx.x + k * MO_RESTORE_THREADS;
            const int b = (i >> t.half_log2) / U::COUNT;
            /* the run begins after what other runs of this block and all before it take, for every row */
            const int before = (b * (BYTES - U::COUNT * U::SIZE) + U::AT) * t.group;
            v[k] = both();
            if (i < pairs) {
                v[k] = ((const both *)(t.from + before))[i];
            }
        }
    }

    __device__ __forceinline__ void sort(const tile &t, uint8_t *space) const
    {
        const int pairs = (t.blocks * U::COUNT) << t.half_log2;
        MO_UNROLL(EACH)
        for (int k = 0; k < EACH; k++) {
            const int i = threadIdx.x + k * MO_RESTORE_THREADS;
            const int unit = i >> t.half_log2, b = unit / U::COUNT;
            const int at = b * BYTES + U::AT + (unit - b * U::COUNT) * U::SIZE;
            const int row = (i & ((1 << t.half_log2) - 1)) * 2;
            if (i < pairs) {
                put(space + place_of(t, row) + at, (typename pair<U::SIZE>::one)v[k].x);
                put(space + place_of(t, row + 1) + at, (typename pair<U::SIZE>::one)v[k].y);
            }
        }
    }
};

/* Bytes [first, end) of 16 that are at the same place in shared memory and in the target. */
static __device__ __forceinline__ void write_part(uint8_t *to, const uint8_t *from, int first, int end)
{
    if (first == 0 && end == 16) {
        *(uint4 *)to = *(const uint4 *)from;
        return;
    }
    while (first <
           end) { /* the largest word that may be here and is not too long: four at most to either end */
        if ((first & 7) == 0 && end - first >= 8) {
            *(uint2 *)(to + first) = *(const uint2 *)(from + first);
            first += 8;
        } else if ((first & 3) == 0 && end - first >= 4) {
            *(uint32_t *)(to + first) = *(const uint32_t *)(from + first);
            first += 4;
        } else if ((first & 1) == 0 && end - first >= 2) {
            *(uint16_t *)(to + first) = *(const uint16_t *)(from + first);
            first += 2;
        } else {
            to[first] = from[first];
            first++;
        }
    }
}

/* A warp per row. */
static __device__ __forceinline__ void write_rows(const tile &t, const uint8_t *space, int bytes)
{
    for (int row = threadIdx.x / 32; row < t.group; row += MO_RESTORE_THREADS / 32) {
        const int skew = place_of(t, row) - row * t.pitch;
        uint8_t *to = t.to + (int64_t)row * t.row_bytes - skew;
        for (int at = (threadIdx.x & 31) * 16; at < skew + bytes; at += 32 * 16) {
            write_part(to + at, space + row * t.pitch + at, max(skew - at, 0), min(skew + bytes - at, 16));
        }
    }
}

template <int TYPE> static __device__ __forceinline__ void restore(const tile &t, uint8_t *space)
{
    if constexpr (!mo_format_has_units(TYPE)) {
        return; /* copied, not restored */
    } else {
        load<TYPE, 0> a;
        a.read(t);
        if constexpr (units<TYPE, 1>::COUNT > 0) {
            load<TYPE, 1> b;
            b.read(t);
            b.sort(t, space);
        }
        a.sort(t, space);
        __syncthreads();
        write_rows(t, space, t.blocks * mo_format_bytes(TYPE));
    }
}

template <typename T>
static __device__ __forceinline__ void copy_words(uint8_t *to, const uint8_t *from, int bytes)
{
    MO_UNROLL(4)
    for (int i = threadIdx.x; i < bytes / (int)sizeof(T); i += MO_RESTORE_THREADS) {
        ((T *)to)[i] = ((const T *)from)[i];
    }
    const int rest = bytes - bytes % (int)sizeof(T) + (int)threadIdx.x;
    if (rest < bytes) {
        to[rest] = from[rest];
    }
}

static __device__ void copy(uint8_t *to, const uint8_t *from, int bytes)
{
    const uint32_t both = (uint32_t)(uintptr_t)to | (uint32_t)(uintptr_t)from;
    if ((both & 15) == 0) {
        copy_words<uint4>(to, from, bytes);
    } else if ((both & 3) == 0) {
        copy_words<uint32_t>(to, from, bytes);
    } else {
        copy_words<uint8_t>(to, from, bytes);
    }
}

/* Block x of the grid: a tile; y: a part; z: an expert. */
MO_BOUNDED(mo_restore, mo_op_restore, MO_RESTORE_THREADS, 4);
MO_KERNEL(mo_restore, mo_op_restore)
{
    __shared__ __align__(16) uint8_t space[MO_RESTORE_TILE + MO_OP_ROWS * MO_RESTORE_PAD];
    const int part = blockIdx.y, number = blockIdx.x;
    const int type = op.type[part], group = op.group[part];
    const mo_restore_cut cut = mo_restore_cut_of(type, op.rows[part], op.cols[part], group);
    const int64_t at = op.at[part] + blockIdx.z * op.stride[part];
    const uint8_t *from = mo_at<const uint8_t>(op.from) + at;
    uint8_t *to = mo_at<uint8_t>(op.to) + at;
    const int tiles = cut.groups * cut.runs;
    if (number >= cut.tiles) {
        return;
    }
    if (number >= tiles) {
        const int64_t done = (int64_t)(number - tiles) * MO_RESTORE_TILE;
        const int64_t left = cut.plain_bytes - done;
        copy(to + cut.plain + done, from + cut.plain + done,
             left < MO_RESTORE_TILE ? (int)left : MO_RESTORE_TILE);
        return;
    }
    const int g = number / cut.runs, first = (number - g * cut.runs) * cut.each;
    const int block_bytes = mo_format_bytes(type);
    const int64_t begin = (int64_t)g * group * cut.row_bytes;
    tile t;
    t.from = from + begin + first * block_bytes * group;
    t.to = to + begin + first * block_bytes;
    t.blocks = min(cut.each, cut.blocks - first);
    t.row_bytes = cut.row_bytes;
    t.pitch = ((t.blocks * block_bytes + 30) / 16 | 1) * 16; /* odd, so that rows are in different banks */
    t.group = group;
    t.half_log2 = 30 - __clz(group);
    switch (type) {
#define RESTORE(name, ...)                                                                                   \
    case MO_##name: restore<MO_##name>(t, space); break;
        MO_QUANTIZED_FORMATS(RESTORE)
#undef RESTORE
    default: break;
    }
}
