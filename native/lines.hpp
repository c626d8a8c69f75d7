// Rows of an image as convolutions read them: lines, with the zeros around the row, cut into phases by the stride. In a line every
// tap is a shift, so vectors run over the flat row of pixels and samples, borders and strides notwithstanding.
#pragma once

#include "geometry.hpp"
#include "phases.hpp"

namespace ringlet::RINGLET_ISA {

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
        phase_ = pixels_ * lanes + Width;
    }

    // Whether a line is a copy; otherwise the row itself serves.
    bool copied() const { return copied_; }
    long size() const { return c_.in_step * phase_; }
    // Memory that `fill` needs beside the line.
    long spare_size() const { return c_.in_step > 1 ? c_.in_step * pixels_ * lanes_ : 0; }

    // Where the first output finds tap t, in elements from the line's begin; the next ones follow it.
    long tap(long t) const {
        const long position = c_.in_base + t * c_.tap_step, at = position - first_;
        return copied_ ? at % c_.in_step * phase_ + at / c_.in_step * lanes_ : position * lanes_;
    }

    // Makes a line of a row; a vector's width of zeros follows each phase.
    void fill(const T* row, T* line, T* spare) const { fill(row, Range{0, c_.outputs}, line, spare); }

    // The same for some outputs only, the first of which comes first in the line.
    void fill(const T* row, const Range& outputs, T* line, T* spare) const {
        const long first = first_ + outputs.first * c_.in_step, pixels = pixels_ - c_.outputs + outputs.last - outputs.first;
        if (c_.in_step == 1) return pad(row, first, line, pixels, Width);
        if (first >= 0 && first + c_.in_step * pixels <= c_.in_size) {
            phases_.split(row + first * lanes_, pixels, line, phase_);
        } else {
            pad(row, first, spare, c_.in_step * pixels, 0);
            phases_.split(spare, pixels, line, phase_);
        }
        for (long k = 0; k < c_.in_step; ++k) clear_elements(line + k * phase_ + pixels * lanes_, Width);
    }

  private:
    void pad(const T* row, long first, T* target, long pixels, long more) const {
        const Range inside = Range{0, c_.in_size}.cut(Range{first, first + pixels});
        const long left = inside.first < inside.last ? inside.first - first : pixels, count = inside.last - inside.first;
        clear_elements(target, left * lanes_);
        if (count > 0) copy_elements(row + inside.first * lanes_, target + left * lanes_, count * lanes_);
        const long done = left + (count > 0 ? count : 0);
        clear_elements(target + done * lanes_, (pixels - done) * lanes_ + more);
    }

    const Axis c_;
    long lanes_, first_, pixels_, phase_;
    bool copied_;
    Phases<T> phases_;
};

}  // namespace ringlet::RINGLET_ISA
