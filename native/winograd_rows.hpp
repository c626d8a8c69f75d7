// Winograd convolution F(4, 3) along rows only, for stride 1: every row of a 3x3 kernel is a convolution in one dimension.
//
//   y = A^T sum over channels and kernel rows of [ (G g) * (B^T d) ]     per tile of 4 outputs side by side, d 6 inputs
//
// 6 multiplications instead of 12. The two-dimensional forms save more of them, but with few channels they spend the time on
// transforms; here an input row is transformed once for three rows of outputs, and sums are three times as long.
#pragma once

#include "winograd.hpp"

namespace ringlet::RINGLET_ISA {

// Tile columns [first, last) of the rows [row_first, row_last): what one pass keeps in cache.
struct Strip {
    long first, last;
    long row_first, row_last;

    long rows() const { return row_last - row_first; }
    long elements(long lanes) const { return (last - first) * lanes; }
};

// How the outputs of a grid are cut into strips of about `vectors` vectors side by side and `max_rows` rows.
struct Strips {
    long columns, rows, across, down;

    Strips(const TileGrid& grid, long vectors, long width, long max_rows) {
        columns = within(1, vectors * width / grid.lanes, grid.tiles_w);
        rows = within(1, max_rows, grid.height);
        across = (grid.tiles_w + columns - 1) / columns;
        down = (grid.height + rows - 1) / rows;
    }
    Strip at(const TileGrid& grid, long index) const {
        const long first = index % across * columns, row = index / across * rows;
        return Strip{first, within(first, first + columns, grid.tiles_w), row, within(row, row + rows, grid.height)};
    }

  private:
    static long within(long least, long value, long most) { return value > most ? most : (value < least ? least : value); }
};

struct RowTransform {
    static constexpr int M = 4, kPoints = Transform<M>::kTile, kTaps = 3;
};

// Tiles of one row of all channels: Pixels side by side become points, target[point][channel][tile column, lane].
template <typename T, int Width, int Pixels, typename Line>
inline __attribute__((always_inline)) void transform_row(const TileGrid& g, long channels, const T* planes, const Strip& strip, long row,
                                                         T* target, long point_stride, Line line) {
    using V = Vec<T, Width>;
    constexpr int Points = RowTransform::kPoints;
    const long lanes = g.lanes;
    for (long c = 0; c < channels; ++c)
        for (long tile = strip.first; tile < strip.last; ++tile, target += lanes) {
            const long left = tile * RowTransform::M + g.offset_w;
            const T* source = planes + ((c * g.height + row) * g.width + left) * lanes;
            const auto run = [&](auto read) {
                for (long lane = 0; lane < lanes; lane += Width) {
                    V pixels[Pixels], points[Points];
                    unroll<Pixels>([&](auto i) { pixels[i] = read(i, source + i * lanes + lane); });
                    line(pixels, points);
                    unroll<Points>([&](auto i) { store(target + i * point_stride + lane, points[i]); });
                }
            };
            if (left >= 0 && left + Pixels <= g.width)
                run([](int, const T* at) { return load<V>(at); });
            else
                run([&](int i, const T* at) { return left + i >= 0 && left + i < g.width ? load<V>(at) : V{}; });
        }
}

template <typename T, int Width>
__attribute__((noinline)) void transform_input_row(const TileGrid& g, long channels, const T* x, const Strip& strip, long row, T* v,
                                                   long point_stride) {
    transform_row<T, Width, RowTransform::kPoints>(g, channels, x, strip, row, v, point_stride,
                                                   [](const auto* d, auto* points) { Transform<4>::input(d, 1, points, 1); });
}

// A row of tiles of c = a * b; a is [depth][Rows], rows of b and c are strides apart.
template <typename T, int Width, int Rows, int Vectors>
__attribute__((noinline)) void row_tiles(long tiles, long depth, const T* a, const T* b, long b_stride, T* c, long c_stride) {
    using V = Vec<T, Width>;
    for (long tile = 0; tile < tiles; ++tile, b += Vectors * Width, c += Vectors * Width) {
        V acc[Rows][Vectors], right[Vectors];
        unroll<Rows>([&](auto i) { unroll<Vectors>([&](auto j) { acc[i][j] = V{}; }); });
        const T *left = a, *end = a + depth * Rows, *source = b;
        for (; left < end; left += Rows, source += b_stride) {
            unroll<Vectors>([&](auto j) { right[j] = load<V>(source + j * Width); });
            unroll<Rows>([&](auto i) {
                const V value = splat<V>(left[i]);
                unroll<Vectors>([&](auto j) { acc[i][j] += value * right[j]; });
            });
        }
        unroll<Rows>([&](auto i) { unroll<Vectors>([&](auto j) { store(c + i * c_stride + j * Width, acc[i][j]); }); });
    }
}

// The pixels of one tile column, all lanes. Copies of what the loop reads: stores might change anything else.
template <typename T, int Width, int Pixels, bool Masked>
__attribute__((noinline)) void write_tile_column(long lanes, const T* m, long point_stride, T* y, long channel, Epilogue<T> epilogue) {
    using V = Vec<T, Width>;
    const V shift = splat<V>(epilogue.bias ? epilogue.bias[channel] : T(0));
    const V floor = splat<V>(epilogue.relu ? T(0) : -std::numeric_limits<T>::infinity());
    for (long lane = 0; lane < lanes; lane += Width) {
        V points[RowTransform::kPoints], result[RowTransform::M];
        unroll<RowTransform::kPoints>([&](auto i) { points[i] = load<V>(m + i * point_stride + lane); });
        Transform<RowTransform::M>::output(points, 1, result, 1);
        unroll<Pixels>([&](auto i) {
            T* target = y + i * lanes + lane;
            V value = result[i] + shift;
            if constexpr (Masked) value = epilogue.with_memory(target, value);
            store(target, maximum(value, floor));
        });
    }
}

// Forward, or with turned weights the data gradient.
template <typename T, int Width>
class RowWinograd {
    static constexpr int M = RowTransform::M, Points = RowTransform::kPoints, kTaps = RowTransform::kTaps;
    static constexpr long kStripVectors = 24, kBandBytes = 256l << 10;
    using V = Vec<T, Width>;

  public:
    long in_channels, out_channels;
    TileGrid in, out;
    const T *x, *weight;
    bool turned;
    T* y;
    Epilogue<T> epilogue;

    void run() const {
        T* u = scratch_array<T>(kScratchShared0, Points * out_channels * depth());
        transform_weights(u);
        const Strips strips(out, kStripVectors, Width, larger(4, kBandBytes / (Points * in_channels * kStripVectors * Width * long(sizeof(T)))));
        const long elements = strips.columns * in.lanes;
#pragma omp parallel num_threads(num_threads())
        {
            T* v = scratch_array<T>(kScratchOwn0, Points * (strips.rows + kTaps - 1) * in_channels * elements);
            T* m = scratch_array<T>(kScratchOwn1, Points * out_channels * elements);
#pragma omp for schedule(dynamic)
            for (long i = 0; i < strips.across * strips.down; ++i) run_strip(strips.at(out, i), u, v, m);
        }
    }

  private:
    static long smaller(long a, long b) { return a < b ? a : b; }
    static long larger(long a, long b) { return a > b ? a : b; }
    long depth() const { return kTaps * in_channels; }

    // u[point][block of output channels][kernel row, input channel][output channel of the block]
    void transform_weights(T* u) const {
        using One = Vec<T, 1>;
        in_halving_tiles<kTileRows>(out_channels, [&](auto rows, long first) {
            constexpr int Rows = decltype(rows)::value;
            for (long i = 0; i < Rows * in_channels * kTaps; ++i) {
                const long k = first + i % Rows, c = i / Rows % in_channels, r = i / Rows / in_channels;
                const T* taps = turned ? weight + (c * out_channels + k) * 9 + 8 - r * kTaps : weight + (k * in_channels + c) * 9 + r * kTaps;
                const One g[kTaps] = {One{taps[0]}, One{taps[turned ? -1 : 1]}, One{taps[turned ? -2 : 2]}};
                One points[Points];
                Transform<M>::filter(g, 1, points, 1);
                for (int point = 0; point < Points; ++point) u[(point * out_channels + first) * depth() + i] = points[point][0];
            }
        });
    }

    void run_strip(const Strip& strip, const T* u, T* v, T* m) const {
        // Rows of v are input rows from `top` on; those outside the plane are never made.
        const long top = larger(strip.row_first + in.offset_h, 0), elements = strip.elements(in.lanes);
        const long v_row = in_channels * elements, point_stride = (strip.rows() + kTaps - 1) * v_row;
        long made = top;
        for (long row = strip.row_first; row < strip.row_last; ++row) {
            const long first = larger(row + in.offset_h, 0), last = smaller(row + in.offset_h + kTaps, in.height);
            for (; made < last; ++made)
                transform_input_row<T, Width>(in, in_channels, x, strip, made, v + (made - top) * v_row, point_stride);
            const long skipped = (first - row - in.offset_h) * in_channels, taps = last > first ? (last - first) * in_channels : 0;
            for (int point = 0; point < Points; ++point)
                multiply(elements, taps, u + point * out_channels * depth(), skipped, v + point * point_stride + (first - top) * v_row,
                         m + point * out_channels * elements);
            for (long k = 0; k < out_channels; ++k) write_row(strip, row, k, m);
        }
    }

    // m[output channel][tile column, lane] for one point
    void multiply(long elements, long taps, const T* u, long skipped, const T* v, T* m) const {
        const long triples = elements / Width / 3, rest = elements / Width % 3, done = 3 * triples * Width;
        in_halving_tiles<kTileRows>(out_channels, [&](auto rows, long k) {
            constexpr int Rows = decltype(rows)::value;
            const T* a = u + k * depth() + skipped * Rows;
            T* c = m + k * elements;
            row_tiles<T, Width, Rows, 3>(triples, taps, a, v, elements, c, elements);
            if (rest == 2) row_tiles<T, Width, Rows, 2>(1, taps, a, v + done, elements, c + done, elements);
            if (rest == 1) row_tiles<T, Width, Rows, 1>(1, taps, a, v + done, elements, c + done, elements);
        });
    }

    void write_row(const Strip& strip, long row, long k, const T* m) const {
        const long elements = strip.elements(out.lanes), point_stride = out_channels * elements;
        for (long tile = strip.first; tile < strip.last; ++tile) {
            const T* source = m + k * elements + (tile - strip.first) * out.lanes;
            T* target = y + ((k * out.height + row) * out.width + tile * M) * out.lanes;
            const auto write = [&](auto pixels) {
                constexpr int Pixels = decltype(pixels)::value;
                if (epilogue.accumulate || epilogue.mask_shift != 0)
                    write_tile_column<T, Width, Pixels, true>(out.lanes, source, point_stride, target, k, epilogue);
                else
                    write_tile_column<T, Width, Pixels, false>(out.lanes, source, point_stride, target, k, epilogue);
            };
            switch (smaller(out.width - tile * M, M)) {
                case 1: write(std_integer<1>{}); break;
                case 2: write(std_integer<2>{}); break;
                case 3: write(std_integer<3>{}); break;
                default: write(std_integer<4>{});
            }
        }
    }
};

}  // namespace ringlet::RINGLET_ISA
