// Rows of an image as convolutions read them: with the zeros around the image, cut into phases by the stride. There every tap is a
// shift, so vectors run over the flat row of pixels and samples, borders and strides notwithstanding.
#pragma once

#include "geometry.hpp"
#include "phases.hpp"

namespace ringlet::RINGLET_ISA {

// One row.
template <typename T>
class Lines {
    static constexpr int Width = kNativeWidth<T>;

  public:
    Lines(const Axis& columns, long lanes) : c_(columns), lanes_(lanes), phases_(columns.in_step, lanes) {
        const long reach = (c_.taps - 1) * c_.tap_step;
        first_ = c_.in_base + (reach < 0 ? reach : 0);
        const long last = c_.in_base + (c_.outputs - 1) * c_.in_step + (reach > 0 ? reach : 0);
        copied_ = c_.in_step > 1 || first_ < 0 || last >= c_.in_size;
        pixels_ = (last - first_) / c_.in_step + 1;
    }

    // Whether a line is a copy; otherwise the row itself serves.
    bool copied() const { return copied_; }
    // Elements of one phase, without and with the vector of zeros that follows it.
    long phase_size() const { return pixels_ * lanes_; }
    long phase_stride() const { return phase_size() + Width; }
    long size() const { return c_.in_step * phase_stride(); }
    // Memory that `fill` needs beside the line.
    long spare_size() const { return c_.in_step > 1 ? c_.in_step * pixels_ * lanes_ : 0; }

    // Where the first output finds tap t: phase and element of that phase. The next outputs follow it.
    struct Place {
        long phase, element;
    };
    Place place(long t) const {
        const long at = c_.in_base + t * c_.tap_step - first_;
        return Place{at % c_.in_step, at / c_.in_step * lanes_};
    }
    // The same in elements from the begin of a line, or of the row if that serves.
    long tap(long t) const {
        if (!copied_) return (c_.in_base + t * c_.tap_step) * lanes_;
        const Place at = place(t);
        return at.phase * phase_stride() + at.element;
    }

    // Makes a line of a row, for some outputs only, the first of which comes first in the line; `blank` is what surrounds the row.
    void fill(const T* row, const Range& outputs, T* line, T* spare, T blank = T(0)) const {
        const long elements = fill_phases(row, outputs, line, phase_stride(), spare, blank);
        for (long k = 0; k < c_.in_step; ++k) clear_elements(line + k * phase_stride() + elements, Width);
    }
    void fill(const T* row, T* line, T* spare, T blank = T(0)) const { fill(row, Range{0, c_.outputs}, line, spare, blank); }

    // Phases `stride` apart; returns the elements of each.
    long fill_phases(const T* row, const Range& outputs, T* line, long stride, T* spare, T blank = T(0)) const {
        const long first = first_ + outputs.first * c_.in_step, pixels = pixels_ - c_.outputs + outputs.last - outputs.first;
        if (c_.in_step == 1) {
            pad(row, first, line, pixels, blank);
        } else if (first >= 0 && first + c_.in_step * pixels <= c_.in_size) {
            phases_.split(row + first * lanes_, pixels, line, stride);
        } else {
            pad(row, first, spare, c_.in_step * pixels, blank);
            phases_.split(spare, pixels, line, stride);
        }
        return pixels * lanes_;
    }

  private:
    void pad(const T* row, long first, T* target, long pixels, T blank) const {
        const Range inside = Range{0, c_.in_size}.cut(Range{first, first + pixels});
        const long count = inside.last - inside.first, left = count > 0 ? inside.first - first : pixels;
        fill_elements(target, left * lanes_, blank);
        if (count <= 0) return;
        copy_elements(row + inside.first * lanes_, target + left * lanes_, count * lanes_);
        fill_elements(target + (left + count) * lanes_, (pixels - left - count) * lanes_, blank);
    }

    const Axis c_;
    long lanes_, first_, pixels_;
    bool copied_;
    Phases<T> phases_;
};

// The input of some rows of outputs: [channel][phase of rows][phase of columns][row][elements]. The rows of one phase follow each
// other, so that not only a row but all rows of outputs can be one run of vectors.
template <typename T>
class InputBand {
    static constexpr long kStepsKnown = 4;

  public:
    InputBand(const ConvProblem& problem, long rows) : p_(problem), lines_(problem.columns, problem.lanes) {
        const Axis& r = p_.rows;
        const long reach = (r.taps - 1) * r.tap_step;
        first_ = r.in_base + (reach < 0 ? reach : 0);
        const long last = r.in_base + (r.outputs - 1) * r.in_step + (reach > 0 ? reach : 0);
        copied_ = lines_.copied() || r.in_step > 1 || first_ < 0 || last >= r.in_size;
        reach_ = reach < 0 ? -reach : reach;
        phase_ = (rows + reach_ / r.in_step) * pitch();
        for (long i = 0; i < kStepsKnown; ++i) read_[i] = r.in_step > kStepsKnown;
        for (long t = 0; t < r.taps; ++t) read_[(r.in_base + t * r.tap_step - first_) % r.in_step % kStepsKnown] = true;
        channel_ = copied_ ? r.in_step * p_.columns.in_step * phase_ : p_.in_plane;
    }

    bool copied() const { return copied_; }
    long size() const { return copied_ ? p_.in_channels * channel_ + lines_.spare_size() : 0; }
    // Elements from one row of outputs to the next.
    long pitch() const { return copied_ ? lines_.phase_size() : p_.in_row; }

    // Where the first output finds tap (r, s) of channel c.
    long tap(long c, long r, long s) const {
        if (!copied_)
            return c * channel_ + (p_.rows.in_base + r * p_.rows.tap_step) * p_.in_row + (p_.columns.in_base + s * p_.columns.tap_step) * p_.lanes;
        const long at = p_.rows.in_base + r * p_.rows.tap_step - first_;
        const auto column = lines_.place(s);
        return c * channel_ + (at % p_.rows.in_step * p_.columns.in_step + column.phase) * phase_ + at / p_.rows.in_step * pitch() +
               column.element;
    }

    // The input of `rows` rows of outputs from `first` on; `memory` has size() elements.
    const T* fill(const T* x, long first, long rows, T* memory) const {
        if (!copied_) return x + first * p_.in_row;
        const long step = p_.rows.in_step, top = first_ + first * step, lines = (rows - 1) * step + reach_ + 1;
        T* spare = memory + p_.in_channels * channel_;
        for (long c = 0; c < p_.in_channels; ++c)
            for (long i = 0; i < lines; ++i) {
                if (!read_[i % step < kStepsKnown ? i % step : 0]) continue;
                T* target = memory + c * channel_ + i % step * p_.columns.in_step * phase_ + i / step * pitch();
                if (top + i >= 0 && top + i < p_.rows.in_size)
                    lines_.fill_phases(x + c * p_.in_plane + (top + i) * p_.in_row, Range{0, p_.columns.outputs}, target, phase_, spare);
                else
                    for (long k = 0; k < p_.columns.in_step; ++k) clear_elements(target + k * phase_, pitch());
            }
        return memory;
    }

  private:
    const ConvProblem& p_;
    Lines<T> lines_;
    long first_, reach_, phase_, channel_;
    bool copied_, read_[kStepsKnown];  // of the first phases of rows: whether some tap reads them
};

}  // namespace ringlet::RINGLET_ISA
