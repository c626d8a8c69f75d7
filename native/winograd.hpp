// Winograd convolution F(m x m, 3 x 3), m = 2 or 4 (Lavin and Gray 2016), for stride 1.
//
//   y = A^T [ (G g G^T) * (B^T d B) ] A       per tile of m x m outputs, d the (m+2) x (m+2) input tile
//
// With samples innermost, all transforms are plain vector code, and the sum over channels is (m+2)^2 matrix products whose
// operands the transforms write in the order in which the products read them. 2.25 (m = 2) and 4 (m = 4) times fewer
// multiplications than direct convolution. The gradients are its adjoints: data by the same routine with turned weights,
// weights by  dg = G^T [ sum (A dy A^T) * (B^T d B) ] G.
#pragma once

#include "gemm.hpp"
#include "lines.hpp"
#include "panels.hpp"

namespace ringlet::RINGLET_ISA {

template <int M>
struct Transform;

template <>
struct Transform<2> {
    static constexpr int kTile = 4;
    template <typename V>
    static inline void input(const V* d, int step, V* o, int out) {
        o[0] = d[0] - d[2 * step];
        o[out] = d[step] + d[2 * step];
        o[2 * out] = d[2 * step] - d[step];
        o[3 * out] = d[step] - d[3 * step];
    }
    template <typename V>
    static inline void output(const V* d, int step, V* o, int out) {
        o[0] = d[0] + d[step] + d[2 * step];
        o[out] = d[step] - d[2 * step] - d[3 * step];
    }
    template <typename V>
    static inline void output_adjoint(const V* d, int step, V* o, int out) {
        o[0] = d[0];
        o[out] = d[0] + d[step];
        o[2 * out] = d[0] - d[step];
        o[3 * out] = -d[step];
    }
    template <typename V>
    static inline void filter(const V* d, int step, V* o, int out) {
        const V sum = (d[0] + d[2 * step]) * 0.5f, middle = d[step] * 0.5f;
        o[0] = d[0];
        o[out] = sum + middle;
        o[2 * out] = sum - middle;
        o[3 * out] = d[2 * step];
    }
    template <typename V>
    static inline void filter_adjoint(const V* d, int step, V* o, int out) {
        const V sum = (d[step] + d[2 * step]) * 0.5f;
        o[0] = d[0] + sum;
        o[out] = (d[step] - d[2 * step]) * 0.5f;
        o[2 * out] = sum + d[3 * step];
    }
};

template <>
struct Transform<4> {
    static constexpr int kTile = 6;
    template <typename V>
    static inline void input(const V* d, int step, V* o, int out) {
        const V d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
        const V even = d4 - 4.0f * d2, odd = d3 - 4.0f * d1;
        const V even2 = d4 - d2, odd2 = 2.0f * (d3 - d1);
        // Sums of one product each: compilers must not choose, here and there differently, which of two they fuse.
        o[0] = (4.0f * d0 + d4) - 5.0f * d2;
        o[out] = even + odd;
        o[2 * out] = even - odd;
        o[3 * out] = even2 + odd2;
        o[4 * out] = even2 - odd2;
        o[5 * out] = (4.0f * d1 + d5) - 5.0f * d3;
    }
    template <typename V>
    static inline void output(const V* d, int step, V* o, int out) {
        const V sum1 = d[step] + d[2 * step], difference1 = d[step] - d[2 * step];
        const V sum2 = d[3 * step] + d[4 * step], difference2 = d[3 * step] - d[4 * step];
        o[0] = d[0] + sum1 + sum2;
        o[out] = difference1 + 2.0f * difference2;
        o[2 * out] = sum1 + 4.0f * sum2;
        o[3 * out] = difference1 + 8.0f * difference2 + d[5 * step];
    }
    template <typename V>
    static inline void output_adjoint(const V* d, int step, V* o, int out) {
        const V even1 = d[0] + d[2 * step], odd1 = d[step] + d[3 * step];
        const V even2 = d[0] + 4.0f * d[2 * step], odd2 = 2.0f * (d[step] + 4.0f * d[3 * step]);
        o[0] = d[0];
        o[out] = even1 + odd1;
        o[2 * out] = even1 - odd1;
        o[3 * out] = even2 + odd2;
        o[4 * out] = even2 - odd2;
        o[5 * out] = d[3 * step];
    }
    template <typename V>
    static inline void filter(const V* d, int step, V* o, int out) {
        using Number = __typeof__(d[0][0] + 0);
        constexpr Number sixth = Number(1) / 6, twelfth = Number(1) / 12, twenty_fourth = Number(1) / 24;
        const V sum = (d[0] + d[2 * step]) * sixth, middle = d[step] * sixth;
        const V outer = d[0] * twenty_fourth + d[2 * step] * sixth, inner = d[step] * twelfth;
        o[0] = d[0] * Number(0.25);
        o[out] = -(sum + middle);
        o[2 * out] = middle - sum;
        o[3 * out] = outer + inner;
        o[4 * out] = outer - inner;
        o[5 * out] = d[2 * step];
    }
    template <typename V>
    static inline void filter_adjoint(const V* d, int step, V* o, int out) {
        using Number = __typeof__(d[0][0] + 0);
        constexpr Number sixth = Number(1) / 6, twelfth = Number(1) / 12, twenty_fourth = Number(1) / 24;
        const V sum1 = (d[step] + d[2 * step]) * sixth, difference1 = (d[2 * step] - d[step]) * sixth;
        const V sum2 = d[3 * step] + d[4 * step], difference2 = d[3 * step] - d[4 * step];
        o[0] = d[0] * Number(0.25) - sum1 + sum2 * twenty_fourth;
        o[out] = difference1 + difference2 * twelfth;
        o[2 * out] = sum2 * sixth - sum1 + d[5 * step];
    }
};

// Two-dimensional transforms: rows first, then columns.
template <int From, int To, typename V, typename Line>
inline __attribute__((always_inline)) void both_axes(const V* from, V* to, Line line) {
    V middle[To * From];
    for (int column = 0; column < From; ++column) line(from + column, From, middle + column, From);
    for (int row = 0; row < To; ++row) line(middle + row * From, 1, to + row * To, 1);
}

// What a plane of the image looks like, and how tiles cover the outputs.
struct TileGrid {
    long height, width;          // of the plane that is read or written
    long offset_h, offset_w;     // of tile (0, 0) in that plane; tiles advance by M
    long tiles_w, lanes;
};

// Elements [first, first + count) of the tiles of a plane, numbered (tile row, tile column, sample), as vectors. Where a pixel is
// some whole vectors, they are read and written where they lie. Otherwise blocks are whole tiles, and pass through `memory`: there
// every place of a patch has its elements side by side.
template <typename T, int M, int Extent>
class Patches {
    static constexpr int Width = kNativeWidth<T>, Places = Extent * Extent;
    using V = Vec<T, Width>;

  public:
    explicit Patches(const TileGrid& grid)
        : g_(grid), whole_(grid.lanes % Width == 0),
          lines_(Axis{grid.tiles_w, 0, 1, grid.offset_w, M, grid.width, Extent, 1, 0, 1}, grid.lanes), phases_(M, grid.lanes) {}

    // Elements of `memory` for blocks of `count` elements.
    long memory_size(long count) const {
        if (whole_) return 0;
        const long line = lines_.size() + lines_.spare_size(), row = (g_.tiles_w * M + 1) * g_.lanes;
        return Places * stride(count) + (line > row ? line : row);
    }

    // What `read` needs for a block of plane.
    void gather(const T* plane, long first, long count, T* memory) const {
        if (whole_) return;
        T* line = memory + Places * stride(count);
        for (int place = 0; place < Places; ++place) clear_elements(memory + place * stride(count) + count, stride(count) - count);
        each_row(first, count, [&](long tile_row, const Range& tiles, long at) {
            const long elements = (tiles.last - tiles.first) * g_.lanes;
            for (int i = 0; i < Extent; ++i) {
                T* target = memory + i * Extent * stride(count) + at;
                const long row = tile_row * M + g_.offset_h + i;
                const bool inside = row >= 0 && row < g_.height;
                if (inside) lines_.fill(plane + row * g_.width * g_.lanes, tiles, line, line + lines_.size());
                for (int j = 0; j < Extent; ++j)
                    if (inside)
                        copy_elements(line + lines_.tap(j), target + j * stride(count), elements);
                    else
                        clear_elements(target + j * stride(count), elements);
            }
        });
    }

    // The patches of vector `index` of the block: places in rows.
    inline __attribute__((always_inline)) void read(const T* plane, long first, long count, long index, const T* memory, V* patch) const {
        if (whole_) return read_plane(plane, (first / Width) + index, patch);
        for (int place = 0; place < Places; ++place) patch[place] = load<V>(memory + place * stride(count) + index * Width);
    }

    // The same way back: outputs to the plane of `channel`, by `write` for each vector, then `scatter`.
    inline __attribute__((always_inline)) void write(T* plane, long first, long count, long index, const V* patch, T* memory, long channel,
                                                     const Epilogue<T>& epilogue) const {
        if (whole_) return write_plane(plane, (first / Width) + index, patch, channel, epilogue);
        for (int place = 0; place < Places; ++place) store(memory + place * stride(count) + index * Width, patch[place]);
    }
    void scatter(T* plane, long first, long count, T* memory, long channel, const Epilogue<T>& epilogue) const {
        if (whole_) return;
        T* line = memory + Places * stride(count);
        each_row(first, count, [&](long tile_row, const Range& tiles, long at) {
            const Range columns = Range{tiles.first * M, tiles.last * M}.cut(Range{0, g_.width});
            for (int i = 0; i < Extent && tile_row * M + i < g_.height; ++i) {
                phases_.join(memory + i * Extent * stride(count) + at, stride(count), tiles.last - tiles.first, line);
                epilogue.write_line(channel, line, plane + ((tile_row * M + i) * g_.width + columns.first) * g_.lanes,
                                    (columns.last - columns.first) * g_.lanes);
            }
        });
    }

  private:
    static long stride(long count) { return (count + Width - 1) / Width * Width; }

    // Calls body(tile row, tiles, at): at is the first tile's place in the block.
    template <typename Body>
    void each_row(long first, long count, Body body) const {
        const long last_tile = (first + count) / g_.lanes;
        for (long tile = first / g_.lanes; tile < last_tile;) {
            const long row = tile / g_.tiles_w, end = (row + 1) * g_.tiles_w < last_tile ? (row + 1) * g_.tiles_w : last_tile;
            body(row, Range{tile - row * g_.tiles_w, end - row * g_.tiles_w}, tile * g_.lanes - first);
            tile = end;
        }
    }

    // Vectors are numbered (tile row, tile column, lane block). Zeros outside the plane.
    inline __attribute__((always_inline)) void read_plane(const T* plane, long vector, V* patch) const {
        const long per_pixel = g_.lanes / Width, tile = vector / per_pixel, lane = vector % per_pixel * Width;
        const long top = tile / g_.tiles_w * M + g_.offset_h, left = tile % g_.tiles_w * M + g_.offset_w;
        const T* source = plane + (top * g_.width + left) * g_.lanes + lane;
        if (top >= 0 && left >= 0 && top + Extent <= g_.height && left + Extent <= g_.width) {
            for (int i = 0; i < Extent; ++i)
                for (int j = 0; j < Extent; ++j) patch[i * Extent + j] = load<V>(source + (i * g_.width + j) * g_.lanes);
            return;
        }
        for (int i = 0; i < Extent; ++i)
            for (int j = 0; j < Extent; ++j) {
                const bool inside = top + i >= 0 && top + i < g_.height && left + j >= 0 && left + j < g_.width;
                patch[i * Extent + j] = inside ? load<V>(source + (i * g_.width + j) * g_.lanes) : V{};
            }
    }

    inline __attribute__((always_inline)) void write_plane(T* plane, long vector, const V* patch, long channel,
                                                           const Epilogue<T>& epilogue) const {
        const long per_pixel = g_.lanes / Width, tile = vector / per_pixel, lane = vector % per_pixel * Width;
        const long top = tile / g_.tiles_w * M, left = tile % g_.tiles_w * M;
        const long rows = g_.height - top < M ? g_.height - top : M, columns = g_.width - left < M ? g_.width - left : M;
        for (long i = 0; i < rows; ++i)
            for (long j = 0; j < columns; ++j)
                epilogue.template write_tile<V, 1, 1>(
                    channel, [&](auto, auto) { return patch[i * M + j]; },
                    [&](auto, auto) { return plane + ((top + i) * g_.width + left + j) * g_.lanes + lane; });
    }

    const TileGrid& g_;
    bool whole_;
    Lines<T> lines_;
    Phases<T> phases_;
};

// How many elements a block of about `vectors` vectors has: whole tiles where pixels are not whole vectors.
template <typename T>
inline long block_elements(const TileGrid& grid, long tiles, long vectors) {
    constexpr long Width = kNativeWidth<T>;
    if (grid.lanes % Width == 0) return vectors * Width < tiles * grid.lanes ? vectors * Width : tiles * grid.lanes;
    const long unit = Width / greatest_common_divisor(Width, grid.lanes);  // tiles that fill whole vectors
    long block = vectors * Width / grid.lanes;
    block = block >= unit ? block / unit * unit : (block < 1 ? 1 : block);
    return (block < tiles ? block : tiles) * grid.lanes;
}

// A range of filters and input channels of a weight array (filters, channels, 3, 3).
struct FilterBlock {
    long filter_first, filter_last, channel_first, channel_last, channels;

    long filters() const { return filter_last - filter_first; }
    long width() const { return channel_last - channel_first; }
};

// u[xi][filter][channel] = (G g G^T)[xi] of the block; with turned, g is rotated by 180 degrees (for the data gradient).
template <typename T, int M>
void transform_filters(const FilterBlock& block, const T* weight, bool turned, T* u) {
    constexpr int Tile = Transform<M>::kTile, Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (block.filters() * block.width() > 256)
    for (long k = 0; k < block.filters(); ++k)
        for (long c = 0; c < block.width(); c += Width) {
            const long count = block.width() - c < Width ? block.width() - c : Width;
            T taps[9][Width] = {};
            const T* source = weight + ((block.filter_first + k) * block.channels + block.channel_first + c) * 9;
            for (long i = 0; i < count; ++i)
                for (int t = 0; t < 9; ++t) taps[turned ? 8 - t : t][i] = source[i * 9 + t];
            V g[9], middle[Tile * 3], out[Tile * Tile];
            for (int t = 0; t < 9; ++t) g[t] = load<V>(taps[t]);
            for (int column = 0; column < 3; ++column) Transform<M>::filter(g + column, 3, middle + column, 3);
            for (int row = 0; row < Tile; ++row) Transform<M>::filter(middle + row * 3, 1, out + row * Tile, 1);
            for (int xi = 0; xi < Tile * Tile; ++xi) {
                T* target = u + (xi * block.filters() + k) * block.width() + c;
                if (count == Width)
                    store(target, out[xi]);
                else
                    for (long i = 0; i < count; ++i) target[i] = out[xi][i];
            }
        }
}

// dweight = G^T du G for a block of filters and all channels; rows of du are `stride` apart, in whole vectors.
template <typename T, int M>
void transform_filter_gradients(const FilterBlock& block, const T* du, long stride, T* dweight) {
    constexpr int Tile = Transform<M>::kTile, Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    const long channels = block.channels;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (block.filters() * channels > 256)
    for (long k = 0; k < block.filters(); ++k)
        for (long c = 0; c < channels; c += Width) {
            const long count = channels - c < Width ? channels - c : Width;
            V in[Tile * Tile], middle[3 * Tile], g[9];
            for (int xi = 0; xi < Tile * Tile; ++xi) in[xi] = load<V>(du + (xi * block.filters() + k) * stride + c);
            for (int column = 0; column < Tile; ++column) Transform<M>::filter_adjoint(in + column, Tile, middle + column, Tile);
            for (int row = 0; row < 3; ++row) Transform<M>::filter_adjoint(middle + row * Tile, 1, g + row * 3, 1);
            T taps[9][Width];
            for (int t = 0; t < 9; ++t) store(taps[t], g[t]);
            T* target = dweight + ((block.filter_first + k) * channels + c) * 9;
            for (long i = 0; i < count; ++i)
                for (int t = 0; t < 9; ++t) target[i * 9 + t] = taps[t][i];
        }
}

// Transformed filters are made and used in blocks of about this many bytes, so that they never leave the cache.
constexpr long kFilterBlockBytes = 4l << 20;

// One stride-1 3x3 convolution: forward (out = filters), or with turned filters the data gradient (out = channels).
template <typename T, int M>
class WinogradConvolution {
    static constexpr int Width = kNativeWidth<T>, Tile = Transform<M>::kTile, Points = Tile * Tile;
    using V = Vec<T, Width>;

  public:
    WinogradConvolution(long in_channels, long out_channels, const TileGrid& in, const TileGrid& out, const T* x, const T* weight,
                        bool turned, T* y, const Epilogue<T>& epilogue)
        : in_channels(in_channels), out_channels(out_channels), in(in), out(out), x(x), weight(weight), turned(turned), y(y),
          epilogue(epilogue), inputs(this->in), outputs(this->out) {}

    void run(long tiles) {
        const long elements = tiles * in.lanes, block = block_elements<T>(in, tiles, block_vectors(vectors_of(elements)));
        const long blocks = (elements + block - 1) / block, room = vectors_of(block) * Width;
        const long outs = blocks == 1 ? block_outs() : out_channels;
        T* u = scratch_array<T>(kScratchShared0, Points * in_channels * outs);
        if (blocks >= 2 * num_threads()) return run_blocks(elements, block, blocks, u);
        T* v = scratch_array<T>(kScratchShared1, Points * in_channels * room);
        T* m = scratch_array<T>(kScratchShared2, Points * outs * room);
        for (long first_out = 0; first_out < out_channels; first_out += outs) {
            const Outs part{first_out, out_channels - first_out < outs ? out_channels - first_out : outs};
            transform_filters<T, M>(filter_block(part), weight, turned, u);
            for (long first = 0; first < elements; first += block) {
                const Block tiles_of{first, elements - first < block ? elements - first : block};
#pragma omp parallel num_threads(num_threads())
                {
                    T* memory = patch_memory(block);
                    if (first_out == 0) {
#pragma omp for schedule(static)
                        for (long c = 0; c < in_channels; ++c) transform_input(c, tiles_of, v, memory);
                    }
#pragma omp for schedule(static)
                    for (long point = 0; point < Points; ++point) multiply(point, part, vectors_of(tiles_of.count), u, v, m);
#pragma omp for schedule(static)
                    for (long k = 0; k < part.count; ++k) transform_output(k, part, tiles_of, m, memory);
                }
            }
        }
    }

  private:
    struct Outs {
        long first, count;
    };
    struct Block {
        long first, count;  // elements
    };

    static long vectors_of(long elements) { return (elements + Width - 1) / Width; }

    T* patch_memory(long block) const {
        const long in_size = inputs.memory_size(block), out_size = outputs.memory_size(block);
        return scratch_array<T>(kScratchOwn2, in_size > out_size ? in_size : out_size);
    }

    // Many blocks of columns: each thread takes whole blocks through all phases.
    void run_blocks(long elements, long block, long blocks, T* u) const {
        const Outs all{0, out_channels};
        const long room = vectors_of(block) * Width;
        transform_filters<T, M>(filter_block(all), weight, turned, u);
#pragma omp parallel num_threads(num_threads())
        {
            T* v = scratch_array<T>(kScratchOwn0, Points * in_channels * room);
            T* m = scratch_array<T>(kScratchOwn1, Points * out_channels * room);
            T* memory = patch_memory(block);
#pragma omp for schedule(dynamic)
            for (long b = 0; b < blocks; ++b) {
                const Block tiles{b * block, elements - b * block < block ? elements - b * block : block};
                for (long c = 0; c < in_channels; ++c) transform_input(c, tiles, v, memory);
                for (long point = 0; point < Points; ++point) multiply(point, all, vectors_of(tiles.count), u, v, m);
                for (long k = 0; k < out_channels; ++k) transform_output(k, all, tiles, m, memory);
            }
        }
    }

    FilterBlock filter_block(const Outs& part) const {
        if (turned) return FilterBlock{0, in_channels, part.first, part.first + part.count, out_channels};
        return FilterBlock{part.first, part.first + part.count, 0, in_channels, in_channels};
    }

    // Columns per block: enough to pay for streaming the filters, few enough for the cache.
    long block_vectors(long vectors) const {
        const long per_vector = Points * (in_channels + out_channels) * Width * long(sizeof(T));
        const long filters = Points * in_channels * out_channels * long(sizeof(T));
        const long budget = filters > (1l << 20) ? filters : (1l << 20);
        long block = budget / per_vector / kTileVectors * kTileVectors;
        if (block < 2 * kTileVectors) block = 2 * kTileVectors;
        return block < vectors ? block : vectors;
    }

    long block_outs() const {
        long outs = kFilterBlockBytes / (Points * in_channels * long(sizeof(T))) / kNativeWidth<T> * kNativeWidth<T>;
        if (outs < kNativeWidth<T>) outs = kNativeWidth<T>;
        return outs < out_channels ? outs : out_channels;
    }

    // v[point][panel][channel][vectors of the panel]
    void transform_input(long channel, const Block& tiles, T* v, T* memory) const {
        const T* plane = x + channel * in.height * in.width * in.lanes;
        const long vectors = vectors_of(tiles.count), point_stride = in_channels * vectors * Width;
        inputs.gather(plane, tiles.first, tiles.count, memory);
        in_vector_tiles(vectors, [&](auto tile, long start) {
            constexpr int Vectors = decltype(tile)::value;
            T* target = v + (start * in_channels + channel * Vectors) * Width;
            for (int j = 0; j < Vectors; ++j) {
                V patch[Points], points[Points];
                inputs.read(plane, tiles.first, tiles.count, start + j, memory, patch);
                both_axes<Tile, Tile>(patch, points, [](const V* d, int step, V* o, int o_step) { Transform<M>::input(d, step, o, o_step); });
                for (int point = 0; point < Points; ++point) store(target + point * point_stride + j * Width, points[point]);
            }
        });
    }

    // m[point][panel][out channel][vectors of the panel]; u is [point][out][in], or turned [point][in][out].
    void multiply(long point, const Outs& part, long count, const T* u, const T* v, T* m) const {
        const T* a = u + point * part.count * in_channels;
        const long row_stride = turned ? 1 : in_channels, depth_stride = turned ? part.count : 1;
        const T* v_point = v + point * in_channels * count * Width;
        T* m_point = m + point * part.count * count * Width;
        in_vector_tiles(count, [&](auto tile, long start) {
            constexpr int Vectors = decltype(tile)::value;
            const T* panel = v_point + start * in_channels * Width;
            T* target = m_point + start * part.count * Width;
            in_halving_tiles<kTileRows>(part.count, [&](auto rows, long k) {
                multiply_tile<T, Width, decltype(rows)::value, Vectors>(in_channels, a + k * row_stride, row_stride, depth_stride,
                                                                        panel, Vectors * Width, target + k * Vectors * Width);
            });
        });
    }

    void transform_output(long k, const Outs& part, const Block& tiles, const T* m, T* memory) const {
        const long channel = part.first + k, vectors = vectors_of(tiles.count), point_stride = part.count * vectors * Width;
        T* plane = y + channel * out.height * out.width * out.lanes;
        in_vector_tiles(vectors, [&](auto tile, long start) {
            constexpr int Vectors = decltype(tile)::value;
            const T* source = m + (start * part.count + k * Vectors) * Width;
            for (int j = 0; j < Vectors; ++j) {
                V points[Points], middle[M * Tile], patch[M * M];
                for (int point = 0; point < Points; ++point) points[point] = load<V>(source + point * point_stride + j * Width);
                for (int column = 0; column < Tile; ++column) Transform<M>::output(points + column, Tile, middle + column, Tile);
                for (int row = 0; row < M; ++row) Transform<M>::output(middle + row * Tile, 1, patch + row * M, 1);
                outputs.write(plane, tiles.first, tiles.count, start + j, patch, memory, channel, epilogue);
            }
        });
        outputs.scatter(plane, tiles.first, tiles.count, memory, channel, epilogue);
    }

    const long in_channels, out_channels;
    const TileGrid in, out;
    const T *x, *weight;
    const bool turned;
    T* y;
    const Epilogue<T> epilogue;
    const Patches<T, M, Tile> inputs;
    const Patches<T, M, M> outputs;
};

// The filters' gradient: (m+2)^2 products over all tiles and samples, summed block by block.
template <typename T, int M>
class WinogradWeightGradient {
    static constexpr int Width = kNativeWidth<T>, Tile = Transform<M>::kTile, Points = Tile * Tile;
    using V = Vec<T, Width>;

  public:
    WinogradWeightGradient(long channels, long filters, const TileGrid& in, const TileGrid& out, const T* x, const T* dy, T* dweight)
        : channels(channels), filters(filters), in(in), out(out), x(x), dy(dy), dweight(dweight), inputs(this->in), gradients(this->out) {}

    void run(long tiles) {
        const long elements = tiles * in.lanes, block = block_elements<T>(in, tiles, block_vectors((elements + Width - 1) / Width));
        const long rows = block < elements ? filters : block_filters(), room = depth_of(block);
        T* du = scratch_array<T>(kScratchShared0, Points * rows * columns());
        T* v = scratch_array<T>(kScratchShared1, Points * channels * room);
        T* m = scratch_array<T>(kScratchShared2, Points * filters * room);
        T* panels = scratch_array<T>(kScratchShared3, Points * columns() * room);
        for (long first = 0; first < elements; first += block) {
            const long count = elements - first < block ? elements - first : block, depth = depth_of(count);
#pragma omp parallel num_threads(num_threads())
            {
                const long in_size = inputs.memory_size(block), out_size = gradients.memory_size(block);
                T* memory = scratch_array<T>(kScratchOwn2, in_size > out_size ? in_size : out_size);
#pragma omp for schedule(static) nowait
                for (long c = 0; c < channels; ++c) transform_input(c, first, count, v, memory);
#pragma omp for schedule(static)
                for (long k = 0; k < filters; ++k) transform_gradient(k, first, count, m, memory);
#pragma omp for schedule(static)
                for (long point = 0; point < Points; ++point) make_panels(point, depth, v, panels);
            }
            for (long row = 0; row < filters; row += rows) {
                const FilterBlock part{row, row + rows < filters ? row + rows : filters, 0, channels, channels};
#pragma omp parallel for schedule(static) num_threads(num_threads())
                for (long point = 0; point < Points; ++point) add_products(point, part, depth, m, panels, du, first > 0);
                if (first + count == elements) transform_filter_gradients<T, M>(part, du, columns(), dweight);
            }
        }
    }

  private:
    // Elements in whole vectors; those after the last tile are zeros.
    static long depth_of(long elements) { return rounded_up(elements, Width); }

    // With all columns in one block the sums of a few filters at a time are finished and leave.
    long block_filters() const {
        const long rows = kFilterBlockBytes / (Points * channels * long(sizeof(T))) / 12 * 12;
        return rows < 12 ? (filters < 12 ? filters : 12) : (rows < filters ? rows : filters);
    }

    long block_vectors(long vectors) const {
        const long per_vector = Points * (channels + filters) * Width * long(sizeof(T));
        long block = (4l << 20) / per_vector;
        if (block < 32) block = 32;
        if (block > 128) block = 128;
        return block < vectors ? block : vectors;
    }

    // Channels in whole vectors.
    long columns() const { return rounded_up(channels, kNativeWidth<T>); }

    // panels[point][panel][depth][channel of the panel]
    void make_panels(long point, long depth, const T* v, T* panels) const {
        in_panels<T>(channels, [&](auto vectors, long channel, long count) {
            transpose(count, depth, v + (point * channels + channel) * depth, depth, panels + (point * columns() + channel) * depth,
                      vectors * kNativeWidth<T>);
        });
    }

    // du[point][filter][channel] for the filters of a part
    void add_products(long point, const FilterBlock& part, long depth, const T* m, const T* panels, T* du, bool accumulate) const {
        in_panels<T>(channels, [&](auto vectors, long channel, long) {
            panel_product<T, decltype(vectors)::value>(part.filters(), Walk::along(depth), m + (point * filters + part.filter_first) * depth, depth,
                                                       panels + (point * columns() + channel) * depth,
                                                       du + point * part.filters() * columns() + channel, columns(), accumulate);
        });
    }

    void transform_input(long channel, long first, long count, T* v, T* memory) const {
        const T* plane = x + channel * in.height * in.width * in.lanes;
        const long depth = depth_of(count);
        inputs.gather(plane, first, count, memory);
        for (long j = 0; j < depth / Width; ++j) {
            V patch[Points], points[Points];
            inputs.read(plane, first, count, j, memory, patch);
            both_axes<Tile, Tile>(patch, points, [](const V* d, int step, V* o, int o_step) { Transform<M>::input(d, step, o, o_step); });
            for (int point = 0; point < Points; ++point) store(v + (point * channels + channel) * depth + j * Width, points[point]);
        }
    }

    void transform_gradient(long filter, long first, long count, T* m, T* memory) const {
        const T* plane = dy + filter * out.height * out.width * out.lanes;
        const long depth = depth_of(count);
        gradients.gather(plane, first, count, memory);
        for (long j = 0; j < depth / Width; ++j) {
            V patch[M * M], middle[Tile * M], points[Points];
            gradients.read(plane, first, count, j, memory, patch);
            for (int column = 0; column < M; ++column) Transform<M>::output_adjoint(patch + column, M, middle + column, M);
            for (int row = 0; row < Tile; ++row) Transform<M>::output_adjoint(middle + row * M, 1, points + row * Tile, 1);
            for (int point = 0; point < Points; ++point) store(m + (point * filters + filter) * depth + j * Width, points[point]);
        }
    }

    const long channels, filters;
    const TileGrid in, out;
    const T *x, *dy;
    T* dweight;
    const Patches<T, M, Tile> inputs;
    const Patches<T, M, M> gradients;
};

}  // namespace ringlet::RINGLET_ISA
