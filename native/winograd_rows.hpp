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
    long room(long lanes, long width) const { return rounded_up(elements(lanes), width); }
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

// How far apart the transformed vectors of a row are.
struct PointLayout {
    long channel, vector, point;
};

// Reads rows of pixels as vectors over the tiles of a strip and their samples.
template <typename T, int Pixels>
class TileRows {
    static constexpr int Width = kNativeWidth<T>, M = RowTransform::M, Points = RowTransform::kPoints;
    using V = Vec<T, Width>;

  public:
    explicit TileRows(const TileGrid& grid)
        : g_(grid), whole_(grid.lanes % Width == 0), lines_(Axis{grid.tiles_w, 0, 1, grid.offset_w, M, grid.width, Pixels, 1, 0, 1}, grid.lanes) {}

    // Elements of `memory` for one row.
    long memory_size() const { return whole_ ? 0 : lines_.size() + lines_.spare_size(); }

    // Row `row` of all channels; `line` makes points of the pixels of a tile.
    template <typename Line>
    inline __attribute__((always_inline)) void transform(long channels, const T* planes, const Strip& strip, long row, T* target,
                                                         const PointLayout layout, T* memory, Line line) const {
        for (long c = 0; c < channels; ++c) {
            const T* source = planes + (c * g_.height + row) * g_.width * g_.lanes;
            T* place = target + c * layout.channel;
            if (whole_)
                for (long tile = strip.first; tile < strip.last; ++tile) place = transform_tile(source, tile, place, layout, line);
            else
                transform_line(source, strip, place, layout, memory, line);
        }
    }

  private:
    template <typename Line>
    inline __attribute__((always_inline)) T* transform_tile(const T* row, long tile, T* place, const PointLayout& layout, Line line) const {
        const long left = tile * M + g_.offset_w, lanes = g_.lanes;
        const T* source = row + left * lanes;
        const auto run = [&](auto read) {
            for (long lane = 0; lane < lanes; lane += Width, place += layout.vector) {
                V pixels[Pixels];
                unroll<Pixels>([&](auto i) { pixels[i] = read(i, source + i * lanes + lane); });
                finish(pixels, place, layout, line);
            }
        };
        if (left >= 0 && left + Pixels <= g_.width)
            run([](int, const T* at) { return load<V>(at); });
        else
            // In a register, or products would move into the branches, where they cannot be fused as elsewhere.
            run([&](int i, const T* at) { return in_register(left + i >= 0 && left + i < g_.width ? load<V>(at) : V{}); });
        return place;
    }

    template <typename Line>
    inline __attribute__((always_inline)) void transform_line(const T* row, const Strip& strip, T* place, const PointLayout& layout,
                                                              T* memory, Line line) const {
        lines_.fill(row, Range{strip.first, strip.last}, memory, memory + lines_.size());
        const T* taps[Pixels];
        for (int i = 0; i < Pixels; ++i) taps[i] = memory + lines_.tap(i);
        const long elements = strip.elements(g_.lanes);
        for (long at = 0; at < elements; at += Width, place += layout.vector) {
            V pixels[Pixels];
            unroll<Pixels>([&](auto i) { pixels[i] = load<V>(taps[i] + at); });
            finish(pixels, place, layout, line);
        }
    }

    template <typename Line>
    static inline __attribute__((always_inline)) void finish(const V (&pixels)[Pixels], T* place, const PointLayout& layout, Line line) {
        V points[Points];
        line(pixels, points);
        unroll<Points>([&](auto i) { store(place + i * layout.point, points[i]); });
    }

    const TileGrid& g_;
    bool whole_;
    Lines<T> lines_;
};

template <typename T>
__attribute__((noinline)) void transform_input_row(const TileRows<T, RowTransform::kPoints>& rows, long channels, const T* x,
                                                   const Strip& strip, long row, T* v, const PointLayout& layout, T* memory) {
    rows.transform(channels, x, strip, row, v, layout, memory,
                   [](const auto* d, auto* points) { Transform<4>::input(d, 1, points, 1); });
}

// The register tile: output channels x points x vectors side by side. Registers of 64 bytes take a weight from memory with every
// multiplication at no cost, so a tile is all points of one vector, which never leave the registers before they are pixels.
// Narrower ones would wait for the weights: their tile is one point of several vectors, as in a matrix product.
template <typename T>
struct RowTileShape {
    static constexpr int Width = kNativeWidth<T>;
    static constexpr bool kAllPoints = RINGLET_REGISTERS >= 32 && Width * sizeof(T) >= 64;
    static constexpr int kFilters = kAllPoints ? 4 : kTileRows;
    static constexpr int kPoints = kAllPoints ? RowTransform::kPoints : 1;
    static constexpr int kVectors = kAllPoints ? 1 : kTileVectors;
};

// What a few vectors of tiles of one row of outputs read and write.
template <typename T>
struct RowTile {
    const T* v[RowTransform::kTaps];  // transformed input rows, [vector][channel][point]
    long rows, channels;
    T* y;  // the row in the plane of the first output channel
    long pixel_stride, plane_stride;
    long offset[kTileVectors], pixels[kTileVectors];  // per vector: of its first pixel in the row, and how many there are
};

// u is [kernel row, channel][point][output channel]; with Memory the epilogue also reads y or a mask.
template <typename T, int Filters, int Vectors, bool Memory>
__attribute__((noinline)) void row_tile(const RowTile<T>& tile, const T* u, const T* bias, const Epilogue<T>& epilogue) {
    constexpr int Width = kNativeWidth<T>;
    constexpr int M = RowTransform::M, Points = RowTransform::kPoints, AtOnce = RowTileShape<T>::kPoints;
    using V = Vec<T, Width>;
    const long v_vector = tile.channels * Points * Width;
    V sums[Vectors][Filters][Points];
    unroll<Points / AtOnce>([&](auto pass) {
        constexpr int First = pass * AtOnce;
        V acc[Vectors][Filters][AtOnce] = {};
        const T* weights = u + First * Filters;
        for (long row = 0; row < tile.rows; ++row) {
            const T* points = tile.v[row] + First * Width;
            for (const T* end = points + v_vector; points < end; points += Points * Width, weights += Points * Filters)
                unroll<AtOnce>([&](auto i) {
                    V point[Vectors];
                    unroll<Vectors>([&](auto j) { point[j] = load<V>(points + j * v_vector + i * Width); });
                    unroll<Filters>([&](auto k) {
                        const V weight = splat<V>(weights[i * Filters + k]);
                        unroll<Vectors>([&](auto j) { acc[j][k][i] += weight * point[j]; });
                    });
                });
        }
        unroll<Vectors * Filters * AtOnce>([&](auto n) {
            constexpr int j = n / (Filters * AtOnce), k = n / AtOnce % Filters, i = n % AtOnce;
            sums[j][k][First + i] = acc[j][k][i];
        });
    });
    const V floor = splat<V>(epilogue.floor());
    for (int j = 0; j < Vectors; ++j) {
        T* plane = tile.y + tile.offset[j];
        unroll<Filters>([&](auto k) {
            V pixels[M];
            Transform<M>::output(sums[j][k], 1, pixels, 1);
            const V shift = splat<V>(bias ? bias[k] : T(0));
            T* target = plane;
            unroll<M>([&](auto i) {
                if (i >= tile.pixels[j]) return;
                V value = pixels[i] + shift;
                if constexpr (Memory) value = epilogue.with_memory(target, value);
                store(target, maximum(value, floor));
                target += tile.pixel_stride;
            });
            plane += tile.plane_stride;
        });
    }
}

// Forward, or with turned weights the data gradient.
template <typename T>
class RowWinograd {
    static constexpr int Width = kNativeWidth<T>;
    static constexpr int M = RowTransform::M, Points = RowTransform::kPoints, kTaps = RowTransform::kTaps;
    static constexpr long kRingBytes = 256l << 10;  // of transformed rows, to stay in the second-level cache
    using Shape = RowTileShape<T>;

  public:
    RowWinograd(long in_channels, long out_channels, const TileGrid& in, const TileGrid& out, const T* x, const T* weight, bool turned,
                T* y, const Epilogue<T>& epilogue)
        : in_channels(in_channels), out_channels(out_channels), in(in), out(out), x(x), weight(weight), turned(turned), y(y),
          epilogue(epilogue), whole(in.lanes % Width == 0), inputs(this->in), phases(M, in.lanes) {}

    void run() const {
        T* u = scratch_array<T>(kScratchShared0, Points * out_channels * depth());
        transform_weights(u);
        // Several bands of rows for each thread; a band transforms two input rows again that its neighbour has made.
        const long threads = num_threads(), band = threads == 1 ? out.height : larger(4, out.height / (2 * threads));
        const long per_element = Points * depth() + (whole ? 0 : M * out_channels);
        const Strips strips(out, kRingBytes / (per_element * Width * long(sizeof(T))), Width, band);
#pragma omp parallel num_threads(num_threads())
        {
            const long room = rounded_up(strips.columns * in.lanes, Width);
            T* v = scratch_array<T>(kScratchOwn0, Points * depth() * room);
            T* memory = scratch_array<T>(kScratchOwn1, inputs.memory_size());
            T* parts = whole ? nullptr : scratch_array<T>(kScratchOwn2, (out_channels + 1) * M * room);
#pragma omp for schedule(dynamic)
            for (long i = 0; i < strips.across * strips.down; ++i) run_strip(strips.at(out, i), u, v, memory, parts);
        }
    }

  private:
    static long smaller(long a, long b) { return a < b ? a : b; }
    static long larger(long a, long b) { return a > b ? a : b; }
    long depth() const { return kTaps * in_channels; }

    // u[block of output channels][kernel row, input channel][point][output channel of the block]
    void transform_weights(T* u) const {
        using One = Vec<T, 1>;
        in_halving_tiles<Shape::kFilters>(out_channels, [&](auto filters, long first) {
            constexpr int Filters = decltype(filters)::value;
            for (long i = 0; i < Filters * depth(); ++i) {
                const long k = i % Filters, c = i / Filters % in_channels, r = i / Filters / in_channels;
                const T* taps = turned ? weight + (c * out_channels + first + k) * 9 + 8 - r * kTaps
                                       : weight + ((first + k) * in_channels + c) * 9 + r * kTaps;
                const One g[kTaps] = {One{taps[0]}, One{taps[turned ? -1 : 1]}, One{taps[turned ? -2 : 2]}};
                One points[Points];
                Transform<M>::filter(g, 1, points, 1);
                T* target = u + (first * depth() + (r * in_channels + c) * Filters) * Points + k;
                for (int point = 0; point < Points; ++point) target[point * Filters] = points[point][0];
            }
        });
    }

    // Going down, v holds the transformed rows of the last kTaps input rows: row i at i % kTaps, [vector][channel][point]. Rows
    // outside the plane are never made.
    void run_strip(const Strip& strip, const T* u, T* v, T* memory, T* parts) const {
        const PointLayout layout{Points * Width, in_channels * Points * Width, Width};
        const long room = strip.room(in.lanes, Width), v_row = Points * in_channels * room;
        long made = larger(strip.row_first + in.offset_h, 0);
        for (long row = strip.row_first; row < strip.row_last; ++row) {
            const long top = row + in.offset_h, first = larger(top, 0), last = smaller(top + kTaps, in.height);
            for (; made < last; ++made) transform_input_row<T>(inputs, in_channels, x, strip, made, v + made % kTaps * v_row, layout, memory);
            RowTile<T> tile{};
            tile.rows = larger(last - first, 0), tile.channels = in_channels;
            tile.pixel_stride = whole ? out.lanes : room, tile.plane_stride = whole ? out.height * out.width * out.lanes : M * room;
            in_pieces<Shape::kVectors>(room / Width, [&](auto vectors, long vector) {
                for (long i = 0; i < tile.rows; ++i) tile.v[i] = v + (first + i) % kTaps * v_row + vector * layout.vector;
                for (int j = 0; j < vectors; ++j) place(strip, vector + j, tile.offset[j], tile.pixels[j]);
                run_vectors<decltype(vectors)::value>(tile, whole ? y + row * out.width * out.lanes : parts, u, (first - top) * in_channels);
            });
            if (!whole) join(strip, row, parts, room);
        }
    }

    // Where a vector's first pixels go in a row, and how many of a tile's pixels there are.
    void place(const Strip& strip, long vector, long& offset, long& pixels) const {
        const long pixel = (strip.first + vector * Width / out.lanes) * M;
        offset = whole ? pixel * out.lanes + vector * Width % out.lanes : vector * Width;
        pixels = whole ? smaller(out.width - pixel, M) : M;
    }

    // Pixels that lie apart, parts[channel][pixel of a tile][tile, sample], become rows.
    void join(const Strip& strip, long row, T* parts, long room) const {
        T* line = parts + out_channels * M * room;
        const long first = strip.first * M, last = smaller(strip.last * M, out.width);
        for (long k = 0; k < out_channels; ++k) {
            phases.join(parts + k * M * room, room, strip.last - strip.first, line);
            epilogue.write_line(k, line, y + ((k * out.height + row) * out.width + first) * out.lanes, (last - first) * out.lanes);
        }
    }

    // All output channels of a tile; `skipped` factors of u belong to kernel rows above the plane.
    template <int Vectors>
    void run_vectors(RowTile<T>& tile, T* first_row, const T* u, long skipped) const {
        const Epilogue<T> own = whole ? epilogue : Epilogue<T>{};
        in_halving_tiles<Shape::kFilters>(out_channels, [&](auto filters, long k) {
            constexpr int Filters = decltype(filters)::value;
            tile.y = first_row + k * tile.plane_stride;
            const T* factors = u + (k * depth() + skipped * Filters) * Points;
            const T* bias = own.bias ? own.bias + k : nullptr;
            if (own.plain())
                row_tile<T, Filters, Vectors, false>(tile, factors, bias, own);
            else
                row_tile<T, Filters, Vectors, true>(tile, factors, bias, own);
        });
    }

    const long in_channels, out_channels;
    const TileGrid in, out;
    const T *x, *weight;
    const bool turned;
    T* y;
    const Epilogue<T> epilogue;
    const bool whole;  // a pixel is some whole vectors
    const TileRows<T, Points> inputs;
    const Phases<T> phases;
};

}  // namespace ringlet::RINGLET_ISA
