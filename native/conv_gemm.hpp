// Convolution as matrix product: the taps of a few columns are packed into a panel that stays in the first-level cache,
// then all output channels pass over it. For many channels, where packing is cheap beside the arithmetic.
//
// Columns are the pixels and samples of a whole plane of outputs, one after the other: small images fill vectors too.
#pragma once

#include "conv_direct.hpp"

namespace ringlet::RINGLET_ISA {

constexpr long kPanelDepth = 256;

// The columns of one panel: pieces of rows of outputs, and where each column reads and writes.
template <typename T>
class PanelColumns {
  public:
    static constexpr long kMost = kTileVectors * kNativeWidth<T>;

    PanelColumns(const ConvProblem& problem, long first, long count) : p_(problem), count_(count) {
        const long row_size = p_.columns.outputs * p_.lanes;
        for (long done = 0; done < count; ++num_pieces_) {
            const long row = (first + done) / row_size, from = (first + done) % row_size;
            const long size = row_size - from < count - done ? row_size - from : count - done;
            pieces_[num_pieces_] = Piece{row, from, done, size};
            done += size;
        }
        if (p_.columns.in_step > 1) list_offsets(p_.columns.in_step, in_offset_);
        if (p_.columns.out_step > 1) list_offsets(p_.columns.out_step, out_offset_);
    }

    // line[i] = what column i reads at tap (r, s) of the plane x, zeros outside of it and after the last column.
    void read(const T* x, long r, long s, T* line) const {
        const long shift = p_.columns.in_base + s * p_.columns.tap_step;
        bool whole = num_pieces_ == 1 && count_ == kMost;
        const Range inside = outputs_inside(p_.columns.in_size, p_.columns.outputs, p_.columns.in_step, shift);
        const long first = inside.first * p_.lanes, last = inside.last * p_.lanes;
        if (whole) whole = pieces_[0].from >= first && pieces_[0].from + kMost <= last;
        if (!whole) clear_elements(line, kMost);
        for (long i = 0; i < num_pieces_; ++i) {
            const Piece& piece = pieces_[i];
            const long in_row = p_.rows.in_base + piece.row * p_.rows.in_step + r * p_.rows.tap_step;
            if (in_row < 0 || in_row >= p_.rows.in_size) {
                if (whole) clear_elements(line, kMost);
                continue;
            }
            const Range range = Range{first, last}.cut(Range{piece.from, piece.from + piece.size});
            if (range.first >= range.last) continue;
            const T* row = x + in_row * p_.in_row + shift * p_.lanes;
            T* target = line + piece.column - piece.from;
            if (p_.columns.in_step == 1)
                copy_elements(row + range.first, target + range.first, range.last - range.first);
            else
                gather(row, piece.column - piece.from, range, line);
        }
    }

    // Row i of the tile is for plane i of y.
    template <int Rows, int Vectors>
    void write(const T* tile, T* y, const Epilogue<T>& epilogue, long channel) const {
        for (int i = 0; i < Rows; ++i)
            for (long n = 0; n < num_pieces_; ++n) {
                const Piece& piece = pieces_[n];
                T* row = y + i * p_.out_plane + (p_.rows.out_base + piece.row * p_.rows.out_step) * p_.out_row + p_.columns.out_base * p_.lanes;
                const T* values = tile + i * Vectors * kNativeWidth<T> + piece.column;
                if (p_.columns.out_step == 1)
                    epilogue.write_line(channel + i, values, row + piece.from, piece.size);
                else
                    scatter(values, piece, row, epilogue, channel + i);
            }
    }

  private:
    struct Piece {
        long row, from, column, size;  // elements [from, from + size) of the row, which are columns from `column` on
    };

    // Of each column in its row, where pixels are `step` apart.
    void list_offsets(long step, int32_t* offsets) const {
        for (long i = 0; i < num_pieces_; ++i)
            for (long k = 0; k < pieces_[i].size; ++k) {
                const long at = pieces_[i].from + k;
                offsets[pieces_[i].column + k] = static_cast<int32_t>(at / p_.lanes * step * p_.lanes + at % p_.lanes);
            }
    }

    void gather(const T* row, long shift, const Range& range, T* line) const {
        constexpr int Width = kNativeWidth<T>;
        using V = Vec<T, Width>;
        if (p_.lanes % Width == 0)
            for (long at = range.first; at < range.last; at += Width) store(line + shift + at, load<V>(row + in_offset_[shift + at]));
        else
            for (long at = range.first; at < range.last; ++at) line[shift + at] = row[in_offset_[shift + at]];
    }

    void scatter(const T* values, const Piece& piece, T* row, const Epilogue<T>& epilogue, long channel) const {
        constexpr int Width = kNativeWidth<T>;
        const int32_t* offsets = out_offset_ + piece.column;
        if (p_.lanes % Width == 0) {
            for (long i = 0; i < piece.size; i += Width) epilogue.write_line(channel, values + i, row + offsets[i], Width);
            return;
        }
        const T shift = epilogue.bias ? epilogue.bias[channel] : T(0), floor = epilogue.floor();
        for (long i = 0; i < piece.size; ++i) {
            T* target = row + offsets[i];
            T value = values[i] + shift;
            if (epilogue.accumulate) value += *target;
            if (epilogue.mask_shift != 0 && !(target[epilogue.mask_shift] > T(0))) value = T(0);
            *target = value < floor ? floor : value;
        }
    }

    const ConvProblem& p_;
    long count_, num_pieces_ = 0;
    Piece pieces_[kMost];
    int32_t in_offset_[kMost], out_offset_[kMost];
};

template <typename T>
class GemmConvolution {
    static constexpr int Width = kNativeWidth<T>;
    static constexpr long kColumns = PanelColumns<T>::kMost;

  public:
    const ConvProblem& p;
    const T* a;  // a(channel, d) = a[channel * row_stride + d * depth_stride] with taps d numbered (input channel, row, column)
    long row_stride, depth_stride;

    // Columns [first, first + count), at most kColumns, of all output channels.
    void run(long first, long count, const T* x, T* y, const Epilogue<T>& epilogue, T* panel) const {
        const PanelColumns<T> columns(p, first, count);
        const long taps = p.rows.taps * p.columns.taps, depth = p.in_channels * taps;
        for (long from = 0; from < depth; from += kPanelDepth) {
            const long to = from + kPanelDepth < depth ? from + kPanelDepth : depth;
            for (long d = from; d < to; ++d)
                columns.read(x + d / taps * p.in_plane, d % taps / p.columns.taps, d % p.columns.taps, panel + (d - from) * kColumns);
            const Epilogue<T> part{from == 0 ? epilogue.bias : nullptr, epilogue.accumulate || from > 0, epilogue.relu && to == depth,
                                   to == depth ? epilogue.mask_shift : 0};
            in_vector_tiles((count + Width - 1) / Width, [&](auto vectors, long) {
                multiply<decltype(vectors)::value>(columns, from, to, first, count, panel, y, part);
            });
        }
    }

  private:
    template <int Vectors>
    void multiply(const PanelColumns<T>& columns, long from, long to, long first, long count, const T* panel, T* y,
                  const Epilogue<T>& epilogue) const {
        const bool side_by_side = p.columns.out_step == 1 && p.rows.out_step == 1;
        in_halving_tiles<kTileRows>(p.out_channels, [&](auto rows, long channel) {
            constexpr int Rows = decltype(rows)::value;
            T tile[Rows * Vectors * Width];
            multiply_tile<T, Width, Rows, Vectors>(to - from, a + channel * row_stride + from * depth_stride, row_stride, depth_stride, panel,
                                                   kColumns, tile);
            T* target = y + channel * p.out_plane;
            if (!side_by_side)
                columns.template write<Rows, Vectors>(tile, target, epilogue, channel);
            else if (count == Vectors * Width)
                finish_tile<T, Width, Rows, Vectors>(tile, target + first, p.out_plane, epilogue, channel);
            else
                finish_tile<T, Width, Rows, Vectors, true>(tile, target + first, p.out_plane, epilogue, channel, count - (Vectors - 1) * Width);
        });
    }
};

template <typename T>
void convolve_gemm(const ConvProblem& p, const GroupStrides& g, const T* x, const T* a, long row_stride, long depth_stride, T* y,
                   const Epilogue<T>& epilogue) {
    constexpr long kColumns = PanelColumns<T>::kMost;
    const long columns = p.rows.outputs * p.columns.outputs * p.lanes, panels = (columns + kColumns - 1) / kColumns;
#pragma omp parallel num_threads(num_threads())
    {
        T* panel = scratch_array<T>(kScratchOwn0, kPanelDepth * kColumns);
#pragma omp for schedule(dynamic) collapse(2)
        for (long group = 0; group < g.groups; ++group)
            for (long index = 0; index < panels; ++index) {
                const long first = index * kColumns, count = columns - first < kColumns ? columns - first : kColumns;
                GemmConvolution<T> own{p, a + group * g.weight, row_stride, depth_stride};
                own.run(first, count, x + group * g.x, y + group * g.y, g.epilogue_of(group, epilogue), panel);
            }
    }
}

}  // namespace ringlet::RINGLET_ISA
