// Winograd convolution of bfloat16 by products of pairs: see winograd.hpp for the algorithm. Transforms are computed in float,
// transformed values are rounded to bfloat16, products are summed in float. For batches that fill vectors.
#include "mixed.hpp"
#include "mixed_products.hpp"
#include "winograd.hpp"

namespace ringlet::RINGLET_ISA {

namespace {

constexpr long kBlockBytes = 512l << 10;

// Elements from one transformed point to the next: a cache line more than they need, or all points would share few cache sets.
constexpr long apart(long elements, long bytes) { return elements + 64 / bytes; }

// F(4, 3) at the points 0, ±5/8, ±3/2 and infinity: with values rounded to 8 bits the errors are 2.4 to 2.8 times smaller than at
// 0, ±1, ±2 and infinity. F(2, 3) is as in winograd.hpp.
template <int M>
struct MixedTransform : Transform<M> {};

template <>
struct MixedTransform<4> {
    static constexpr int kTile = 6;
    static constexpr float a = 0.625f, b = 1.5f, a2 = a * a, b2 = b * b;
    static constexpr float kOrigin = 1 / (a2 * b2), kNear = 1 / (2 * a2 * (a2 - b2)), kFar = 1 / (2 * b2 * (b2 - a2));

    template <typename V>
    static inline void input(const V* d, int step, V* o, int out) {
        const V d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
        const V even = d4 - b2 * d2, odd = a * (d3 - b2 * d1);
        const V even2 = d4 - a2 * d2, odd2 = b * (d3 - a2 * d1);
        o[0] = (a2 * b2) * d0 - (a2 + b2) * d2 + d4;
        o[out] = even + odd;
        o[2 * out] = even - odd;
        o[3 * out] = even2 + odd2;
        o[4 * out] = even2 - odd2;
        o[5 * out] = (a2 * b2) * d1 - (a2 + b2) * d3 + d5;
    }
    template <typename V>
    static inline void output(const V* d, int step, V* o, int out) {
        const V sum1 = d[step] + d[2 * step], difference1 = d[step] - d[2 * step];
        const V sum2 = d[3 * step] + d[4 * step], difference2 = d[3 * step] - d[4 * step];
        o[0] = d[0] + sum1 + sum2;
        o[out] = a * difference1 + b * difference2;
        o[2 * out] = a2 * sum1 + b2 * sum2;
        o[3 * out] = (a * a2) * difference1 + (b * b2) * difference2 + d[5 * step];
    }
    template <typename V>
    static inline void output_adjoint(const V* d, int step, V* o, int out) {
        const V even1 = d[0] + a2 * d[2 * step], odd1 = a * d[step] + (a * a2) * d[3 * step];
        const V even2 = d[0] + b2 * d[2 * step], odd2 = b * d[step] + (b * b2) * d[3 * step];
        o[0] = d[0];
        o[out] = even1 + odd1;
        o[2 * out] = even1 - odd1;
        o[3 * out] = even2 + odd2;
        o[4 * out] = even2 - odd2;
        o[5 * out] = d[3 * step];
    }
    template <typename V>
    static inline void filter(const V* d, int step, V* o, int out) {
        const V even1 = kNear * d[0] + (kNear * a2) * d[2 * step], odd1 = (kNear * a) * d[step];
        const V even2 = kFar * d[0] + (kFar * b2) * d[2 * step], odd2 = (kFar * b) * d[step];
        o[0] = kOrigin * d[0];
        o[out] = even1 + odd1;
        o[2 * out] = even1 - odd1;
        o[3 * out] = even2 + odd2;
        o[4 * out] = even2 - odd2;
        o[5 * out] = d[2 * step];
    }
    template <typename V>
    static inline void filter_adjoint(const V* d, int step, V* o, int out) {
        const V sum1 = kNear * (d[step] + d[2 * step]), difference1 = (kNear * a) * (d[step] - d[2 * step]);
        const V sum2 = kFar * (d[3 * step] + d[4 * step]), difference2 = (kFar * b) * (d[3 * step] - d[4 * step]);
        o[0] = kOrigin * d[0] + sum1 + sum2;
        o[out] = difference1 + difference2;
        o[2 * out] = a2 * sum1 + b2 * sum2 + d[5 * step];
    }
};

// Patches of Extent x Extent elements of a plane, M apart; vectors are numbered (tile row, tile column, lane block).
template <int M, int Extent>
struct MixedPatches {
    TileGrid g;

    struct Place {
        long top, left, lane;
    };
    Place place(long vector) const {
        const long per_pixel = g.lanes / kWide, tile = vector / per_pixel;
        return Place{tile / g.tiles_w * M + g.offset_h, tile % g.tiles_w * M + g.offset_w, vector % per_pixel * kWide};
    }

    inline __attribute__((always_inline)) void read(const bfloat16* plane, long vector, Floats* patch) const {
        const Place at = place(vector);
        const bfloat16* source = plane + (at.top * g.width + at.left) * g.lanes + at.lane;
        const bool inside = at.top >= 0 && at.left >= 0 && at.top + Extent <= g.height && at.left + Extent <= g.width;
        for (int i = 0; i < Extent; ++i)
            for (int j = 0; j < Extent; ++j) {
                const bool here = inside || (at.top + i >= 0 && at.top + i < g.height && at.left + j >= 0 && at.left + j < g.width);
                patch[i * Extent + j] = here ? load_wide(source + (i * g.width + j) * g.lanes) : Floats{};
            }
    }

    inline __attribute__((always_inline)) void write(bfloat16* plane, long vector, const Floats* patch, long channel,
                                                     const MixedEpilogue& epilogue) const {
        const Place at = place(vector);
        for (int i = 0; i < M && at.top + i < g.height; ++i)
            for (int j = 0; j < M && at.left + j < g.width; ++j)
                epilogue.write(channel, plane + ((at.top + i) * g.width + at.left + j) * g.lanes + at.lane, patch[i * M + j]);
    }
};

template <int M>
struct Line {
    template <typename V>
    void operator()(const V* d, int step, V* o, int out) const {
        MixedTransform<M>::input(d, step, o, out);
    }
};

// Forward (outs = filters), or with turned filters the data gradient (outs = channels).
template <int M>
class MixedWinograd {
    static constexpr int Tile = MixedTransform<M>::kTile, Points = Tile * Tile;

  public:
    long ins, outs;
    MixedPatches<M, Tile> inputs;
    MixedPatches<M, M> outputs;
    const bfloat16* x;
    const float* weight;
    bool turned;
    bfloat16* y;
    MixedEpilogue epilogue;

    // A few outputs at a time if all columns are one block, so that their filters stay in the cache; else all of them.
    void run(long tiles) const {
        const long vectors = tiles * (inputs.g.lanes / kWide), block = block_vectors(vectors);
        const long part = block < vectors ? outs : block_outs();
        uint32_t* u = scratch_array<uint32_t>(kScratchShared0, Points * filters_apart(part));
        uint32_t* v = scratch_array<uint32_t>(kScratchShared1, Points * inputs_apart(block));
        float* m = scratch_array<float>(kScratchShared2, Points * sums_apart(part, block));
        for (long first = 0; first < vectors; first += block) {
            const long count = vectors - first < block ? vectors - first : block;
#pragma omp parallel for schedule(static) num_threads(num_threads())
            for (long pair = 0; pair < pairs(); ++pair) transform_inputs(pair, first, count, v);
            for (long out = 0; out < outs; out += part) {
                const long num = outs - out < part ? outs - out : part;
                if (first == 0 || part < outs) transform_filters(out, num, u);
#pragma omp parallel num_threads(num_threads())
                {
#pragma omp for schedule(static)
                    for (long point = 0; point < Points; ++point) multiply(point, num, count, u, v, m);
#pragma omp for schedule(static)
                    for (long k = 0; k < num; ++k) transform_outputs(out, k, num, first, count, m);
                }
            }
        }
    }

  private:
    long pairs() const { return pairs_of(ins); }
    long filters_apart(long num) const { return apart(num * pairs(), 4); }
    long inputs_apart(long count) const { return apart(pairs() * count * kWide, 4); }
    static long sums_apart(long num, long count) { return apart(num * count * kWide, 4); }

    long block_vectors(long vectors) const {
        const long per_vector = Points * (2 * ins + 4 * outs) * kWide, filters = 2 * Points * ins * outs;
        long block = (filters > (1l << 20) ? filters : (1l << 20)) / per_vector / kTileVectors * kTileVectors;
        if (block < 2 * kTileVectors) block = 2 * kTileVectors;
        return block < vectors ? block : vectors;
    }
    long block_outs() const {
        const long number = kBlockBytes / (4 * Points * pairs()) / kWide * kWide;
        return number < kWide ? (outs < kWide ? outs : long(kWide)) : (number < outs ? number : outs);
    }

    // v[point][panel][pair of channels][vectors of the panel]
    void transform_inputs(long pair, long first, long count, uint32_t* v) const {
        const long plane = inputs.g.height * inputs.g.width * inputs.g.lanes, stride = inputs_apart(count);
        in_vector_tiles(count, [&](auto tile, long start) {
            constexpr int Vectors = decltype(tile)::value;
            uint32_t* target = v + (start * pairs() + pair * Vectors) * kWide;
            for (int j = 0; j < Vectors; ++j) {
                Floats patch[Points], one[Points], two[Points] = {};
                inputs.read(x + 2 * pair * plane, first + start + j, patch);
                both_axes<Tile, Tile>(patch, one, Line<M>{});
                if (2 * pair + 1 < ins) {
                    inputs.read(x + (2 * pair + 1) * plane, first + start + j, patch);
                    both_axes<Tile, Tile>(patch, two, Line<M>{});
                }
                for (int point = 0; point < Points; ++point) store(target + point * stride + j * kWide, paired(one[point], two[point]));
            }
        });
    }

    // The transformed filters of kWide channels from `channel` on.
    void filter_points(long filter, long channel, long channels, Floats* points) const {
        const long count = channels - channel < kWide ? channels - channel : kWide;
        float taps[9][kWide] = {};
        const float* source = weight + (filter * channels + channel) * 9;
        for (long i = 0; i < count; ++i)
            for (int t = 0; t < 9; ++t) taps[turned ? 8 - t : t][i] = source[i * 9 + t];
        Floats g[9], middle[Tile * 3];
        for (int t = 0; t < 9; ++t) g[t] = load<Floats>(taps[t]);
        for (int column = 0; column < 3; ++column) MixedTransform<M>::filter(g + column, 3, middle + column, 3);
        for (int row = 0; row < Tile; ++row) MixedTransform<M>::filter(middle + row * 3, 1, points + row * Tile, 1);
    }

    // u[point][out][pair of ins], or turned [point][pair of ins][out].
    void transform_filters(long first, long num, uint32_t* u) const {
        if (turned) return transform_turned(first, num, u);
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (num * ins > 256)
        for (long k = 0; k < num; ++k)
            for (long c = 0; c < ins; c += kWide) {
                Floats points[Points];
                filter_points(first + k, c, ins, points);
                const long count = pairs() - c / 2 < kWide / 2 ? pairs() - c / 2 : kWide / 2;
                for (int point = 0; point < Points; ++point) {
                    const Halves16 narrow = narrowed(points[point]);
                    memcpy(u + point * filters_apart(num) + k * pairs() + c / 2, &narrow, 4 * count);
                }
            }
    }
    void transform_turned(long first, long num, uint32_t* u) const {
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (num * ins > 256)
        for (long pair = 0; pair < pairs(); ++pair)
            for (long c = 0; c < num; c += kWide) {
                Floats one[Points], two[Points] = {};
                filter_points(2 * pair, first + c, outs, one);
                if (2 * pair + 1 < ins) filter_points(2 * pair + 1, first + c, outs, two);
                const long count = num - c < kWide ? num - c : kWide;
                for (int point = 0; point < Points; ++point) {
                    const Bits both = paired(one[point], two[point]);
                    memcpy(u + point * filters_apart(num) + pair * num + c, &both, 4 * count);
                }
            }
    }

    // m[point][panel][out][vectors of the panel]
    void multiply(long point, long num, long count, const uint32_t* u, const uint32_t* v, float* m) const {
        const uint32_t* a = u + point * filters_apart(num);
        const long row_stride = turned ? 1 : pairs(), depth_stride = turned ? num : 1;
        in_vector_tiles(count, [&](auto tile, long start) {
            constexpr int Vectors = decltype(tile)::value;
            const uint32_t* panel = v + point * inputs_apart(count) + start * pairs() * kWide;
            float* target = m + point * sums_apart(num, count) + start * num * kWide;
            in_halving_tiles<kTileRows>(num, [&](auto rows, long k) {
                pair_tile<decltype(rows)::value, Vectors>(pairs(), a + k * row_stride, row_stride, depth_stride, panel, Vectors * kWide,
                                                          target + k * Vectors * kWide, Vectors * kWide, false);
            });
        });
    }

    void transform_outputs(long out, long k, long num, long first, long count, const float* m) const {
        bfloat16* plane = y + (out + k) * outputs.g.height * outputs.g.width * outputs.g.lanes;
        const long stride = sums_apart(num, count);
        in_vector_tiles(count, [&](auto tile, long start) {
            constexpr int Vectors = decltype(tile)::value;
            const float* source = m + (start * num + k * Vectors) * kWide;
            for (int j = 0; j < Vectors; ++j) {
                Floats points[Points], middle[M * Tile], patch[M * M];
                for (int point = 0; point < Points; ++point) points[point] = load<Floats>(source + point * stride + j * kWide);
                for (int column = 0; column < Tile; ++column) MixedTransform<M>::output(points + column, Tile, middle + column, Tile);
                for (int row = 0; row < M; ++row) MixedTransform<M>::output(middle + row * Tile, 1, patch + row * M, 1);
                outputs.write(plane, first + start + j, patch, out + k, epilogue);
            }
        });
    }
};

// The filters' gradient: (m+2)^2 products over all tiles and samples, summed block by block; pairs of samples lie side by side.
template <int M>
class MixedWinogradGradient {
    static constexpr int Tile = MixedTransform<M>::kTile, Points = Tile * Tile;

  public:
    long channels, filters;
    MixedPatches<M, Tile> inputs;
    MixedPatches<M, M> gradients;
    const bfloat16 *x, *dy;
    float* dweight;

    void run(long tiles) const {
        const long vectors = tiles * (inputs.g.lanes / kWide), block = block_vectors(vectors);
        const long rows = block < vectors ? filters : block_filters();
        float* du = scratch_array<float>(kScratchShared0, Points * apart(rows * columns(), 4));
        uint16_t* v = scratch_array<uint16_t>(kScratchShared1, Points * apart(channels * block * kWide, 2));
        uint16_t* m = scratch_array<uint16_t>(kScratchShared2, Points * apart(filters * block * kWide, 2));
        uint32_t* panels = scratch_array<uint32_t>(kScratchShared3, Points * columns() * block * kWide / 2);
        for (long first = 0; first < vectors; first += block) {
            const long count = vectors - first < block ? vectors - first : block;
#pragma omp parallel num_threads(num_threads())
            {
#pragma omp for schedule(static) nowait
                for (long c = 0; c < channels; ++c) transform_input(c, first, count, v);
#pragma omp for schedule(static)
                for (long k = 0; k < filters; ++k) transform_gradient(k, first, count, m);
#pragma omp for schedule(static)
                for (long point = 0; point < Points; ++point) make_panels(point, count * kWide / 2, v, panels);
            }
            for (long row = 0; row < filters; row += rows) {
                const FilterBlock part{row, row + rows < filters ? row + rows : filters, 0, channels, channels};
#pragma omp parallel for schedule(static) num_threads(num_threads())
                for (long point = 0; point < Points; ++point) add_block(point, part, count * kWide / 2, m, panels, du, first > 0);
                if (first + count == vectors) transform_sums(part, du);
            }
        }
    }

  private:
    long columns() const { return rounded_up(channels, kWide); }
    long block_filters() const {
        const long rows = kFilterBlockBytes / (4 * Points * channels) / kTileRows * kTileRows;
        return rows < kTileRows ? (filters < kTileRows ? filters : long(kTileRows)) : (rows < filters ? rows : filters);
    }
    long block_vectors(long vectors) const {
        const long per_vector = Points * (channels + filters) * kWide * 2;
        long block = (4l << 20) / per_vector;
        if (block < 32) block = 32;
        if (block > 128) block = 128;
        return block < vectors ? block : vectors;
    }

    // dweight = G^T du G for the filters of a part.
    void transform_sums(const FilterBlock& part, const float* du) const {
        const long stride = apart(part.filters() * columns(), 4);
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (part.filters() * channels > 256)
        for (long k = 0; k < part.filters(); ++k)
            for (long c = 0; c < channels; c += kWide) {
                const long count = channels - c < kWide ? channels - c : kWide;
                Floats in[Points], middle[3 * Tile], g[9];
                for (int point = 0; point < Points; ++point) in[point] = load<Floats>(du + point * stride + k * columns() + c);
                for (int column = 0; column < Tile; ++column) MixedTransform<M>::filter_adjoint(in + column, Tile, middle + column, Tile);
                for (int row = 0; row < 3; ++row) MixedTransform<M>::filter_adjoint(middle + row * Tile, 1, g + row * 3, 1);
                float taps[9][kWide];
                for (int t = 0; t < 9; ++t) store(taps[t], g[t]);
                float* target = dweight + ((part.filter_first + k) * channels + c) * 9;
                for (long i = 0; i < count; ++i)
                    for (int t = 0; t < 9; ++t) target[i * 9 + t] = taps[t][i];
            }
    }

    // panels[point][panel][pair][channel of the panel]
    void make_panels(long point, long pairs, const uint16_t* v, uint32_t* panels) const {
        const uint32_t* source = reinterpret_cast<const uint32_t*>(v);
        in_panels<float>(channels, [&](auto vectors, long channel, long count) {
            transpose_pairs(count, pairs, source + point * apart(channels * pairs, 4) + channel * pairs, pairs, panels + (point * columns() + channel) * pairs,
                            vectors * kWide);
        });
    }

    void add_block(long point, const FilterBlock& part, long pairs, const uint16_t* m, const uint32_t* panels, float* du, bool accumulate) const {
        const uint32_t* left = reinterpret_cast<const uint32_t*>(m) + point * apart(filters * pairs, 4) + part.filter_first * pairs;
        in_panels<float>(channels, [&](auto vectors, long channel, long) {
            pair_panel_product<decltype(vectors)::value>(part.filters(), Walk::along(pairs), left, pairs,
                                                         panels + (point * columns() + channel) * pairs,
                                                         du + point * apart(part.filters() * columns(), 4) + channel, columns(), accumulate);
        });
    }

    void transform_input(long channel, long first, long count, uint16_t* v) const {
        const bfloat16* plane = x + channel * inputs.g.height * inputs.g.width * inputs.g.lanes;
        for (long j = 0; j < count; ++j) {
            Floats patch[Points], points[Points];
            inputs.read(plane, first + j, patch);
            both_axes<Tile, Tile>(patch, points, Line<M>{});
            for (int point = 0; point < Points; ++point) store(v + point * apart(channels * count * kWide, 2) + (channel * count + j) * kWide, narrowed(points[point]));
        }
    }

    void transform_gradient(long filter, long first, long count, uint16_t* m) const {
        const bfloat16* plane = dy + filter * gradients.g.height * gradients.g.width * gradients.g.lanes;
        for (long j = 0; j < count; ++j) {
            Floats patch[M * M], middle[Tile * M], points[Points];
            gradients.read(plane, first + j, patch);
            for (int column = 0; column < M; ++column) MixedTransform<M>::output_adjoint(patch + column, M, middle + column, M);
            for (int row = 0; row < Tile; ++row) MixedTransform<M>::output_adjoint(middle + row * M, 1, points + row * Tile, 1);
            for (int point = 0; point < Points; ++point) store(m + point * apart(filters * count * kWide, 2) + (filter * count + j) * kWide, narrowed(points[point]));
        }
    }
};

long tiles_of(long outputs, long m) { return (outputs + m - 1) / m; }

template <int M>
void forward(const ConvShape& s, const bfloat16* x, const float* weight, bfloat16* y, const MixedEpilogue& epilogue) {
    const long tiles_h = tiles_of(s.out_height, M), tiles_w = tiles_of(s.out_width, M);
    MixedWinograd<M>{s.channels, s.filters, {TileGrid{s.height, s.width, -s.padding_h, -s.padding_w, tiles_w, s.lanes}},
                     {TileGrid{s.out_height, s.out_width, 0, 0, tiles_w, s.lanes}}, x, weight, false, y, epilogue}
        .run(tiles_h * tiles_w);
}

template <int M>
void backward_data(const ConvShape& s, const bfloat16* dy, const float* weight, bfloat16* dx, const MixedEpilogue& epilogue) {
    const long tiles_h = tiles_of(s.height, M), tiles_w = tiles_of(s.width, M);
    MixedWinograd<M>{s.filters, s.channels, {TileGrid{s.out_height, s.out_width, s.padding_h - 2, s.padding_w - 2, tiles_w, s.lanes}},
                     {TileGrid{s.height, s.width, 0, 0, tiles_w, s.lanes}}, dy, weight, true, dx, epilogue}
        .run(tiles_h * tiles_w);
}

template <int M>
void backward_weight(const ConvShape& s, const bfloat16* x, const bfloat16* dy, float* dweight) {
    const long tiles_h = tiles_of(s.out_height, M), tiles_w = tiles_of(s.out_width, M);
    MixedWinogradGradient<M>{s.channels, s.filters, {TileGrid{s.height, s.width, -s.padding_h, -s.padding_w, tiles_w, s.lanes}},
                             {TileGrid{s.out_height, s.out_width, 0, 0, tiles_w, s.lanes}}, x, dy, dweight}
        .run(tiles_h * tiles_w);
}

}  // namespace

void mixed_winograd_forward(const ConvShape& s, const bfloat16* x, const float* weight, const float* bias, bfloat16* y, bool relu, int m) {
    const MixedEpilogue epilogue{bias, false, relu, nullptr, y};
    m == 2 ? forward<2>(s, x, weight, y, epilogue) : forward<4>(s, x, weight, y, epilogue);
}

void mixed_winograd_backward_data(const ConvShape& s, const bfloat16* dy, const float* weight, bfloat16* dx, const bfloat16* mask,
                                  bool accumulate, int m) {
    const MixedEpilogue epilogue{nullptr, accumulate, false, mask, dx};
    m == 2 ? backward_data<2>(s, dy, weight, dx, epilogue) : backward_data<4>(s, dy, weight, dx, epilogue);
}

void mixed_winograd_backward_weight(const ConvShape& s, const bfloat16* x, const bfloat16* dy, float* dweight, int m) {
    m == 2 ? backward_weight<2>(s, x, dy, dweight) : backward_weight<4>(s, x, dy, dweight);
}

}  // namespace ringlet::RINGLET_ISA
