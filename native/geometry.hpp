// Convolution geometry, one axis at a time.
//
// Forward and backward-data convolution are the same loop once their index arithmetic is written down:
//
//   output i  is at position  out_base + i * out_step  of its axis
//   tap    t  reads position  in_base + i * in_step + t * tap_step  of the input axis (zero outside)
//             with the weight at  weight_base + t * weight_step  of the kernel axis
//
// Backward data with stride s is s independent stride-1 problems (one per phase), each with its share of the taps.
#pragma once

namespace ringlet {

struct ConvShape {
    long channels, height, width;              // x
    long filters, kernel_height, kernel_width; // weight (filters, channels / groups, kernel_height, kernel_width)
    long out_height, out_width;                // y
    long lanes;
    long stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups;

    long group_channels() const { return channels / groups; }
    long group_filters() const { return filters / groups; }
    long taps() const { return kernel_height * kernel_width; }
};

struct Axis {
    long outputs, out_base, out_step;
    long in_base, in_step, in_size;
    long taps, tap_step;
    long weight_base, weight_step;

    // The taps that fall inside the input for output i: [first, last).
    void valid_taps(long i, long& first, long& last) const {
        const long origin = in_base + i * in_step;
        first = taps;
        last = 0;
        for (long t = 0; t < taps; ++t) {
            const long position = origin + t * tap_step;
            if (position < 0 || position >= in_size) continue;
            if (t < first) first = t;
            last = t + 1;
        }
        if (first > last) first = last;
    }
};

inline Axis forward_axis(long in_size, long outputs, long kernel, long stride, long padding, long dilation) {
    return Axis{outputs, 0, 1, -padding, stride, in_size, kernel, dilation, 0, 1};
}

inline long greatest_common_divisor(long a, long b) {
    while (b != 0) {
        const long rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// The gradient of a forward axis with respect to its input, for the input positions phase, phase + stride, …
inline Axis backward_axis(long in_size, long outputs, long kernel, long stride, long padding, long dilation, long phase) {
    const long weight_step = stride / greatest_common_divisor(stride, dilation);
    long first = 0;
    while (first < kernel && (phase + padding - first * dilation) % stride != 0) ++first;
    const long taps = first < kernel ? (kernel - first + weight_step - 1) / weight_step : 0;
    const long positions = phase < in_size ? (in_size - phase + stride - 1) / stride : 0;
    const long in_base = taps > 0 ? (phase + padding - first * dilation) / stride : 0;
    return Axis{positions, phase, stride, in_base, 1, outputs, taps, -(dilation * weight_step / stride), first, weight_step};
}

// A convolution over two axes for one group of channels, with the strides of weights and planes in elements.
struct ConvProblem {
    Axis rows, columns;
    long in_channels, out_channels;
    long in_row, out_row;              // elements per row of the input and output planes
    long in_plane, out_plane;          // elements per plane
    long weight_out, weight_in;        // weight stride per output channel and per (contracted) input channel
    long weight_row;                   // weight stride per kernel row; per kernel column it is 1
    long lanes;
};

inline ConvProblem forward_problem(const ConvShape& s) {
    ConvProblem p;
    p.rows = forward_axis(s.height, s.out_height, s.kernel_height, s.stride_h, s.padding_h, s.dilation_h);
    p.columns = forward_axis(s.width, s.out_width, s.kernel_width, s.stride_w, s.padding_w, s.dilation_w);
    p.in_channels = s.group_channels();
    p.out_channels = s.group_filters();
    p.in_row = s.width * s.lanes;
    p.out_row = s.out_width * s.lanes;
    p.in_plane = s.height * p.in_row;
    p.out_plane = s.out_height * p.out_row;
    p.weight_out = s.group_channels() * s.taps();
    p.weight_in = s.taps();
    p.weight_row = s.kernel_width;
    p.lanes = s.lanes;
    return p;
}

inline ConvProblem backward_problem(const ConvShape& s, long row_phase, long column_phase) {
    ConvProblem p;
    p.rows = backward_axis(s.height, s.out_height, s.kernel_height, s.stride_h, s.padding_h, s.dilation_h, row_phase);
    p.columns = backward_axis(s.width, s.out_width, s.kernel_width, s.stride_w, s.padding_w, s.dilation_w, column_phase);
    p.in_channels = s.group_filters();
    p.out_channels = s.group_channels();
    p.in_row = s.out_width * s.lanes;
    p.out_row = s.width * s.lanes;
    p.in_plane = s.out_height * p.in_row;
    p.out_plane = s.height * p.out_row;
    p.weight_out = s.taps();
    p.weight_in = s.group_channels() * s.taps();
    p.weight_row = s.kernel_width;
    p.lanes = s.lanes;
    return p;
}

// Without neighbours rows need not be told apart: several become one, as long as `elements` are wanted in a row.
inline void join_rows(ConvProblem& p, long elements) {
    const auto single = [](const Axis& a) {
        return a.taps == 1 && a.in_base == 0 && a.in_step == 1 && a.out_base == 0 && a.out_step == 1 && a.in_size == a.outputs;
    };
    if (!single(p.rows) || !single(p.columns)) return;
    const long height = p.rows.outputs;
    long joined = 1;
    while (joined < height && (height % joined != 0 || joined * p.out_row < elements)) ++joined;
    p.rows.outputs = p.rows.in_size = height / joined;
    p.columns.outputs = p.columns.in_size = p.columns.outputs * joined;
    p.in_row *= joined, p.out_row *= joined;
}

// Outputs [first, last) along one axis.
struct Range {
    long first, last;

    Range cut(const Range& other) const {
        const long from = first > other.first ? first : other.first, to = last < other.last ? last : other.last;
        return Range{from, to > from ? to : from};
    }
};

// The outputs along one axis whose input at `shift` lies inside.
inline Range outputs_inside(long in_size, long outputs, long stride, long shift) {
    const long first = shift < 0 ? (-shift + stride - 1) / stride : 0;
    const long last = in_size - shift > 0 ? (in_size - shift - 1) / stride + 1 : 0;
    return Range{first, last}.cut(Range{0, outputs});
}

}  // namespace ringlet
