// Convolutions and dense layers of bfloat16 as products of pairs, summed in float: for batches that fill vectors.
//
//   forward, data gradient: C(channels x columns) = A(channels x depth) * B(depth x columns), pairs along the depth
//   weight gradient:        C(filters x channels) = A(filters x depth) * B(channels x depth)^T, pairs of samples, which lie side by
//                           side already
#pragma once

#include "bf16.hpp"
#include "geometry.hpp"
#include "panels.hpp"

namespace ringlet::RINGLET_ISA {

constexpr long kPairDepth = 256;   // pairs of a panel
constexpr long kPanelGroup = 4;    // panels that are multiplied by one block of rows while it is in the cache

inline long pairs_of(long depth) { return (depth + 1) / 2; }

// -- forward and data gradient --------------------------------------------------------------------------------------------
// All output pixels and samples of a problem as columns, in vectors.
class PairConvolution {
  public:
    PairConvolution(const ConvProblem& problem, const bfloat16* x, const float* weight, bfloat16* y, const MixedEpilogue& epilogue)
        : p_(problem), x_(x), weight_(weight), y_(y), epilogue_(epilogue), per_pixel_(problem.lanes / kWide),
          taps_(problem.rows.taps * problem.columns.taps), depth_(problem.in_channels * taps_), pairs_(pairs_of(depth_)) {}

    void run() const {
        uint32_t* a = scratch_array<uint32_t>(kScratchShared0, p_.out_channels * pairs_);
        pack_weights(a);
        const long vectors = p_.rows.outputs * p_.columns.outputs * per_pixel_;
        constexpr long Group = kPanelGroup * kTileVectors;
#pragma omp parallel num_threads(num_threads())
        {
            uint32_t* panels = scratch_array<uint32_t>(kScratchOwn0, kPairDepth * Group * kWide);
            float* sums = scratch_array<float>(kScratchOwn1, p_.out_channels * Group * kWide);
#pragma omp for schedule(dynamic)
            for (long first = 0; first < vectors; first += Group)
                run_group(first, vectors - first < Group ? vectors - first : Group, a, panels, sums);
        }
    }

  private:
    // a[out][pair], taps numbered (input channel, row, column).
    void pack_weights(uint32_t* a) const {
#pragma omp parallel num_threads(num_threads()) if (p_.out_channels * depth_ > 65536)
        {
            float* row = scratch_array<float>(kScratchOwn0, 2 * pairs_);
#pragma omp for schedule(static)
            for (long out = 0; out < p_.out_channels; ++out) {
                gather_row(out, row);
                if (depth_ % 2) row[depth_] = 0;
                uint32_t* target = a + out * pairs_;
                for (long pair = 0; pair < pairs_; ++pair) target[pair] = paired(row[2 * pair], row[2 * pair + 1]);
            }
        }
    }

    void gather_row(long out, float* row) const {
        const float* source = weight_ + out * p_.weight_out + p_.rows.weight_base * p_.weight_row + p_.columns.weight_base;
        for (long in = 0; in < p_.in_channels; ++in, source += p_.weight_in)
            for (long r = 0; r < p_.rows.taps; ++r)
                for (long c = 0; c < p_.columns.taps; ++c)
                    *row++ = source[r * p_.rows.weight_step * p_.weight_row + c * p_.columns.weight_step];
    }

    void run_group(long first, long count, const uint32_t* a, uint32_t* panels, float* sums) const {
        if (pairs_ == 0) memset(sums, 0, sizeof(float) * p_.out_channels * count * kWide);  // no tap reaches these positions
        for (long begin = 0; begin < pairs_; begin += kPairDepth) {
            const long end = begin + kPairDepth < pairs_ ? begin + kPairDepth : pairs_;
            in_vector_tiles(count, [&](auto tile, long start) {
                pack_panel<decltype(tile)::value>(first + start, begin, end, panels + start * kPairDepth * kWide);
            });
            in_halving_tiles<kTileRows>(p_.out_channels, [&](auto rows, long out) {
                in_vector_tiles(count, [&](auto tile, long start) {
                    constexpr int Vectors = decltype(tile)::value;
                    pair_tile<decltype(rows)::value, Vectors>(end - begin, a + out * pairs_ + begin, pairs_, 1,
                                                              panels + start * kPairDepth * kWide, Vectors * kWide,
                                                              sums + (start * p_.out_channels + out * Vectors) * kWide, Vectors * kWide,
                                                              begin > 0);
                });
            });
        }
        in_vector_tiles(count, [&](auto tile, long start) { write<decltype(tile)::value>(first + start, sums + start * p_.out_channels * kWide); });
    }

    struct Column {
        long row, pixel, lane;
    };
    Column column(long vector) const {
        const long pixel = vector / per_pixel_;
        return Column{pixel / p_.columns.outputs, pixel % p_.columns.outputs, vector % per_pixel_ * kWide};
    }

    // Where a column finds its taps in a plane; -1: nowhere, which is zero.
    void find_taps(const Column& at, long* offsets) const {
        const long top = p_.rows.in_base + at.row * p_.rows.in_step, left = p_.columns.in_base + at.pixel * p_.columns.in_step;
        for (long r = 0; r < p_.rows.taps; ++r)
            for (long c = 0; c < p_.columns.taps; ++c) {
                const long row = top + r * p_.rows.tap_step, column = left + c * p_.columns.tap_step;
                const bool inside = row >= 0 && row < p_.rows.in_size && column >= 0 && column < p_.columns.in_size;
                *offsets++ = inside ? row * p_.in_row + column * p_.lanes + at.lane : -1;
            }
    }

    // panel[pair - begin][j] = both taps of a pair, of column j.
    template <int Vectors>
    void pack_panel(long first, long begin, long end, uint32_t* panel) const {
        long* offsets = scratch_array<long>(kScratchOwn2, taps_);
        for (int j = 0; j < Vectors; ++j) {
            find_taps(column(first + j), offsets);
            long tap = 2 * begin % taps_;
            const bfloat16* plane = x_ + 2 * begin / taps_ * p_.in_plane;
            const bfloat16* end_plane = x_ + p_.in_channels * p_.in_plane;
            const auto next = [&]() -> Halves16 {
                const long offset = offsets[tap];
                const Halves16 value =
                    offset >= 0 && plane < end_plane ? load<Halves16>(reinterpret_cast<const uint16_t*>(plane + offset)) : Halves16{};
                if (++tap == taps_) tap = 0, plane += p_.in_plane;
                return value;
            };
            for (long pair = begin; pair < end; ++pair) {
                const Halves16 one = next(), two = next();
                store(panel + ((pair - begin) * Vectors + j) * kWide, paired(one, two));
            }
        }
    }

    template <int Vectors>
    void write(long first, const float* sums) const {
        for (int j = 0; j < Vectors; ++j) {
            const Column at = column(first + j);
            bfloat16* target = y_ + (p_.rows.out_base + at.row * p_.rows.out_step) * p_.out_row +
                               (p_.columns.out_base + at.pixel * p_.columns.out_step) * p_.lanes + at.lane;
            for (long out = 0; out < p_.out_channels; ++out)
                epilogue_.write(out, target + out * p_.out_plane, load<Floats>(sums + (out * Vectors + j) * kWide));
        }
    }

    const ConvProblem p_;
    const bfloat16* x_;
    const float* weight_;
    bfloat16* y_;
    const MixedEpilogue epilogue_;
    const long per_pixel_, taps_, depth_, pairs_;
};

// -- weight gradient --------------------------------------------------------------------------------------------------------
// c[i * c_stride + j] (+)= the sum over the walk of a[i * a_stride …] . panel[…][j], of pairs.
template <int Rows, int Vectors>
__attribute__((noinline)) void pair_panel_tile(const Walk& walk, const uint32_t* a, long a_stride, const uint32_t* panel, float* c,
                                               long c_stride, bool accumulate) {
    Floats acc[Rows][Vectors];
    unroll<Rows>([&](auto i) {
        unroll<Vectors>([&](auto j) { acc[i][j] = accumulate ? load<Floats>(c + i * c_stride + j * kWide) : Floats{}; });
    });
    for (long row = 0; row < walk.rows; ++row)
        for (long pixel = 0; pixel < walk.pixels; ++pixel) {
            const uint32_t* left = a + row * walk.left_row + pixel * walk.left_pixel;
            const uint32_t* line = panel + row * walk.right_row + pixel * walk.right_pixel;
            for (const uint32_t* end = left + walk.run; left < end; ++left, line += Vectors * kWide) {
                Operand right[Vectors];
                unroll<Vectors>([&](auto j) { right[j] = operand(in_register(load<Bits>(line + j * kWide))); });
                unroll<Rows>([&](auto i) {
                    const Operand value = operand(splat_pair(left[i * a_stride]));
                    unroll<Vectors>([&](auto j) { acc[i][j] = add_products(acc[i][j], value, right[j]); });
                });
            }
        }
    unroll<Rows>([&](auto i) { unroll<Vectors>([&](auto j) { store(c + i * c_stride + j * kWide, acc[i][j]); }); });
}

template <int Vectors>
inline void pair_panel_product(long rows, const Walk& walk, const uint32_t* a, long a_stride, const uint32_t* panel, float* c, long c_stride,
                               bool accumulate) {
    in_halving_tiles<kTileRows>(rows, [&](auto tile, long row) {
        pair_panel_tile<decltype(tile)::value, Vectors>(walk, a + row * a_stride, a_stride, panel, c + row * c_stride, c_stride, accumulate);
    });
}

// Rows of pairs as columns; transposing moves 32 bits, whatever they mean.
inline void transpose_pairs(long rows, long columns, const uint32_t* source, long source_stride, uint32_t* target, long target_stride) {
    transpose(rows, columns, reinterpret_cast<const float*>(source), source_stride, reinterpret_cast<float*>(target), target_stride);
}

// As GemmWeightGradient of conv_weight_gemm.hpp: a block of the input, a few channels wide, is transposed into a panel,
// [row][column][pair of samples][channel]; a tap is a shift of that panel, and taps that read padding are left out.
class PairWeightGradient {
    static constexpr long kPanelBytes = 256l << 10;

  public:
    PairWeightGradient(const ConvShape& shape, const bfloat16* x, const bfloat16* dy, float* dweight)
        : s_(shape), pairs_(shape.lanes / 2), x_(reinterpret_cast<const uint32_t*>(x)), dy_(reinterpret_cast<const uint32_t*>(dy)),
          dweight_(dweight) {}

    void run() const {
        in_panels<float>(s_.channels, [&](auto vectors, long first, long count) { run_panel<decltype(vectors)::value>(first, count); });
    }

  private:
    struct Block {
        Range rows;
        long in_first, in_last;
    };

    template <int Vectors>
    void run_panel(long channel, long count) const {
        constexpr long Line = Vectors * kWide;
        const long rows = rows_per_block(Line);
        uint32_t* panel = scratch_array<uint32_t>(kScratchShared0, input_rows(rows) * s_.width * pairs_ * Line);
        float* sums = scratch_array<float>(kScratchShared1, s_.taps() * s_.filters * Line);
#pragma omp parallel num_threads(num_threads())
        {
#pragma omp for schedule(static)
            for (long tap = 0; tap < s_.taps(); ++tap) memset(sums + tap * s_.filters * Line, 0, sizeof(float) * s_.filters * Line);
            for (long row = 0; row < s_.out_height; row += rows) {
                const Block block = block_at(row, rows);
#pragma omp for schedule(static)
                for (long in_row = block.in_first; in_row < block.in_last; ++in_row) fill<Line>(block, in_row, channel, count, panel);
#pragma omp for schedule(static)
                for (long filter = 0; filter < s_.filters; filter += kTileRows) add_taps<Vectors>(block, filter, panel, sums + filter * Line);
            }
#pragma omp for schedule(static)
            for (long filter = 0; filter < s_.filters; ++filter) write<Line>(filter, channel, count, sums + filter * Line);
        }
    }

    long input_rows(long rows) const { return (rows - 1) * s_.stride_h + (s_.kernel_height - 1) * s_.dilation_h + 1; }
    long rows_per_block(long line) const {
        long rows = 1;
        while (rows < s_.out_height && input_rows(rows + 1) * s_.width * pairs_ * line * 4 <= kPanelBytes) ++rows;
        return rows;
    }

    Block block_at(long row, long rows) const {
        const Range out = Range{row, row + rows}.cut(Range{0, s_.out_height});
        const long top = out.first * s_.stride_h - s_.padding_h;
        const Range in = Range{top, top + input_rows(out.last - out.first)}.cut(Range{0, s_.height});
        return Block{out, in.first, in.last};
    }

    template <long Line>
    void fill(const Block& block, long in_row, long channel, long count, uint32_t* panel) const {
        const long plane = s_.height * s_.width * pairs_, row = s_.width * pairs_;
        transpose_pairs(count, row, x_ + channel * plane + in_row * row, plane, panel + (in_row - block.in_first) * row * Line, Line);
    }

    // sums[tap][filter][channel] grow by this block's part, for the filters of one tile.
    template <int Vectors>
    void add_taps(const Block& block, long filter, const uint32_t* panel, float* sums) const {
        constexpr long Line = Vectors * kWide;
        const long pixel = pairs_ * Line, plane = s_.out_height * s_.out_width * pairs_;
        const long filters = s_.filters - filter < kTileRows ? s_.filters - filter : kTileRows;
        for (long tap = 0; tap < s_.taps(); ++tap) {
            const long down = tap / s_.kernel_width * s_.dilation_h - s_.padding_h;
            const long across = tap % s_.kernel_width * s_.dilation_w - s_.padding_w;
            const Range rows = outputs_inside(s_.height, s_.out_height, s_.stride_h, down).cut(block.rows);
            const Range columns = outputs_inside(s_.width, s_.out_width, s_.stride_w, across);
            Walk walk{rows.last - rows.first, s_.out_width * pairs_, s_.stride_h * s_.width * pixel,
                      columns.last - columns.first, pairs_, s_.stride_w * pixel, pairs_};
            if (walk.rows == 0 || walk.pixels == 0) continue;
            if (s_.stride_w == 1) walk.run *= walk.pixels, walk.pixels = 1;
            const uint32_t* left = dy_ + filter * plane + (rows.first * s_.out_width + columns.first) * pairs_;
            const long in_row = rows.first * s_.stride_h + down - block.in_first, in_column = columns.first * s_.stride_w + across;
            pair_panel_product<Vectors>(filters, walk, left, plane, panel + (in_row * s_.width + in_column) * pixel,
                                        sums + tap * s_.filters * Line, Line, true);
        }
    }

    template <long Line>
    void write(long filter, long channel, long count, const float* sums) const {
        float* target = dweight_ + (filter * s_.channels + channel) * s_.taps();
        for (long c = 0; c < count; ++c)
            for (long tap = 0; tap < s_.taps(); ++tap) *target++ = sums[tap * s_.filters * Line + c];
    }

    const ConvShape s_;
    const long pairs_;
    const uint32_t *x_, *dy_;
    float* dweight_;
};

// -- dense ------------------------------------------------------------------------------------------------------------------
// y(rows x lanes) = A(rows x depth) * x(depth x lanes); A is float, given by its strides, one of which is 1.
inline void pair_dense(long rows, long depth, long lanes, const float* a, long row_stride, long depth_stride, const bfloat16* x, bfloat16* y,
                       const MixedEpilogue& epilogue) {
    constexpr long Block = 16;
    const long pairs = pairs_of(depth), blocks = (rows + Block - 1) / Block;
    uint32_t* panels = scratch_array<uint32_t>(kScratchShared0, pairs * lanes);
#pragma omp parallel num_threads(num_threads()) if (rows * depth * lanes > 65536)
    {
#pragma omp for schedule(static)
        for (long pair = 0; pair < pairs; ++pair)
            in_vector_tiles(lanes / kWide, [&](auto tile, long vector) {
                constexpr int Vectors = decltype(tile)::value;
                const uint16_t* source = reinterpret_cast<const uint16_t*>(x) + 2 * pair * lanes + vector * kWide;
                uint32_t* target = panels + vector * kWide * pairs + pair * Vectors * kWide;
                unroll<Vectors>([&](auto j) {
                    const Halves16 second = 2 * pair + 1 < depth ? load<Halves16>(source + lanes + j * kWide) : Halves16{};
                    store(target + j * kWide, paired(load<Halves16>(source + j * kWide), second));
                });
            });
        uint32_t* packed = scratch_array<uint32_t>(kScratchOwn0, pairs * Block);
#pragma omp for schedule(static)
        for (long block = 0; block < blocks; ++block) {
            const long first = block * Block, count = rows - first < Block ? rows - first : Block;
            const float* source = a + first * row_stride;
            // [pair][row] of a transpose, whose rows lie side by side; else [row][pair].
            const long row_step = depth_stride == 1 ? pairs : 1, pair_step = depth_stride == 1 ? 1 : Block;
            if (depth_stride == 1) {
                for (long i = 0; i < count; ++i, source += row_stride) {
                    for (long pair = 0; pair < depth / 2; ++pair) packed[i * pairs + pair] = paired(source[2 * pair], source[2 * pair + 1]);
                    if (depth % 2) packed[i * pairs + pairs - 1] = paired(source[depth - 1], 0.0f);
                }
            } else {
                for (long pair = 0; pair < pairs; ++pair, source += 2 * depth_stride)
                    for (long i = 0; i < count; ++i)
                        packed[pair * Block + i] = paired(source[i], 2 * pair + 1 < depth ? source[depth_stride + i] : 0.0f);
            }
            in_halving_tiles<kTileRows>(count, [&](auto tile_rows, long row) {
                in_vector_tiles(lanes / kWide, [&](auto tile_vectors, long vector) {
                    constexpr int Rows = decltype(tile_rows)::value, Vectors = decltype(tile_vectors)::value;
                    float tile[Rows * Vectors * kWide];
                    pair_tile<Rows, Vectors>(pairs, packed + row * row_step, row_step, pair_step, panels + vector * kWide * pairs,
                                             Vectors * kWide, tile, Vectors * kWide, false);
                    for (int i = 0; i < Rows; ++i)
                        for (int j = 0; j < Vectors; ++j)
                            epilogue.write(first + row + i, y + (first + row + i) * lanes + (vector + j) * kWide,
                                           load<Floats>(tile + (i * Vectors + j) * kWide));
                });
            });
        }
    }
}

// dweight = dy * x^T: a panel of inputs is transposed once and serves all outputs.
inline void pair_dense_weight(long outputs, long inputs, long lanes, const bfloat16* x, const bfloat16* dy, float* dweight) {
    constexpr long Columns = kWide * kTileVectors;
    const long panels = (inputs + Columns - 1) / Columns, pairs = lanes / 2;
#pragma omp parallel num_threads(num_threads()) if (outputs * inputs * lanes > 65536)
    {
        uint32_t* panel = scratch_array<uint32_t>(kScratchOwn0, pairs * Columns);
        float* partial = scratch_array<float>(kScratchOwn1, outputs * Columns);
#pragma omp for schedule(static)
        for (long p = 0; p < panels; ++p) {
            const long first = p * Columns, count = inputs - first < Columns ? inputs - first : Columns;
            transpose_pairs(count, pairs, reinterpret_cast<const uint32_t*>(x) + first * pairs, pairs, panel, Columns);
            float* target = dweight + first;
            const bool whole = count == Columns;
            pair_panel_product<kTileVectors>(outputs, Walk::along(pairs), reinterpret_cast<const uint32_t*>(dy), pairs, panel,
                                             whole ? target : partial, whole ? inputs : Columns, false);
            for (long i = 0; i < (whole ? 0 : outputs); ++i) memcpy(target + i * inputs, partial + i * Columns, sizeof(float) * count);
        }
    }
}

}  // namespace ringlet::RINGLET_ISA
