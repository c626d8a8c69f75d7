// Optimizer updates in one pass over flat buffers, and sums over them. Formulas: ringlet/kernels/reference/updates.py.
#pragma once

#include <cmath>

#include "elementwise.hpp"

namespace ringlet::RINGLET_ISA {

// While it lives, results of this thread that are too small to be normal numbers become zero. Moments of weights whose gradients
// have vanished would be such numbers for a long time, and arithmetic with them is several to a hundred times as slow.
class TinyIsZero {
#if defined(__x86_64__)
  public:
    TinyIsZero() : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(before_ | kFlushResults | kFlushOperands); }
    ~TinyIsZero() { __builtin_ia32_ldmxcsr(before_); }

  private:
    static constexpr unsigned kFlushResults = 1u << 15, kFlushOperands = 1u << 6;
    const unsigned before_;
#elif defined(__aarch64__)
  public:
    TinyIsZero() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
        set(before_ | kFlush);
    }
    ~TinyIsZero() { set(before_); }

  private:
    static constexpr unsigned long kFlush = 1ul << 24;
    static void set(unsigned long mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
    unsigned long before_;
#else
  public:
    TinyIsZero() {}
#endif
    TinyIsZero(const TinyIsZero&) = delete;
    TinyIsZero& operator=(const TinyIsZero&) = delete;
};

// Calls body(width, at) on all vectors of flat buffers.
template <typename T, typename Body>
inline __attribute__((always_inline)) void over_weights(long count, Body body) {
    over_elements(count, [=](long first, long last) {
        const TinyIsZero mode;
        in_vectors<T>(first, last, body);
    });
}

template <typename V>
inline V square_root(V value) {
    constexpr int Width = sizeof(V) / sizeof(value[0]);
    V result;
    for (int i = 0; i < Width; ++i) result[i] = std::sqrt(value[i]);
    return result;
}

// The gradient with weight decay: coupled adds decay * w to it, decoupled shrinks w first.
template <typename V, typename T>
inline V decayed(V& w, V g, T decay, T learning_rate, bool decoupled) {
    if (!decoupled) return g + w * decay;
    w -= w * (learning_rate * decay);
    return g;
}

template <typename T>
void sgd_update(T* w, const T* g, T* velocity, long count, double learning_rate, double momentum, bool nesterov, double weight_decay,
                bool decoupled) {
    const T rate = T(learning_rate), m = T(momentum), decay = T(weight_decay);
    over_weights<T>(count, [=](auto width, long at) {
        using V = Vec<T, decltype(width)::value>;
        V weight = load<V>(w + at);
        V step = decayed(weight, load<V>(g + at), decay, rate, decoupled);
        if (velocity) {
            const V v = m * load<V>(velocity + at) + step;
            store(velocity + at, v);
            step = nesterov ? step + m * v : v;
        }
        store(w + at, weight - rate * step);
    });
}

template <typename T>
void rmsprop_update(T* w, const T* g, T* square, long count, double learning_rate, double rho, double epsilon, double weight_decay,
                    bool decoupled) {
    const T rate = T(learning_rate), keep = T(rho), take = T(1 - rho), eps = T(epsilon), decay = T(weight_decay);
    over_weights<T>(count, [=](auto width, long at) {
        using V = Vec<T, decltype(width)::value>;
        V weight = load<V>(w + at);
        const V gradient = decayed(weight, load<V>(g + at), decay, rate, decoupled);
        const V s = keep * load<V>(square + at) + take * gradient * gradient;
        store(square + at, s);
        store(w + at, weight - rate * gradient / (square_root(s) + eps));
    });
}

template <typename T>
void adam_update(T* w, const T* g, T* first, T* second, long count, const AdamSettings& a) {
    const T b1 = T(a.beta1), b2 = T(a.beta2), take1 = T(1 - a.beta1), take2 = T(1 - a.beta2), eps = T(a.epsilon);
    const T rate = T(a.learning_rate), decay = T(a.weight_decay);
    const double correction1 = 1 - std::pow(a.beta1, double(a.step)), next1 = 1 - std::pow(a.beta1, double(a.step + 1));
    // m^ = from_moment * m + from_gradient * g
    const T from_moment = a.nesterov ? T(a.beta1 / next1) : T(1 / correction1);
    const T from_gradient = a.nesterov ? T((1 - a.beta1) / correction1) : T(0);
    const bool decoupled = a.decoupled;
    const T root2 = T(1 / std::sqrt(1 - std::pow(a.beta2, double(a.step))));
    over_weights<T>(count, [=](auto width, long at) {
        using V = Vec<T, decltype(width)::value>;
        V weight = load<V>(w + at);
        const V gradient = decayed(weight, load<V>(g + at), decay, rate, decoupled);
        const V m = b1 * load<V>(first + at) + take1 * gradient;
        const V v = b2 * load<V>(second + at) + take2 * gradient * gradient;
        store(first + at, m);
        store(second + at, v);
        store(w + at, weight - rate * (from_moment * m + from_gradient * gradient) / (square_root(v) * root2 + eps));
    });
}

template <typename T>
void adadelta_update(T* w, const T* g, T* square, T* delta, long count, double learning_rate, double rho, double epsilon,
                     double weight_decay, bool decoupled) {
    const T rate = T(learning_rate), keep = T(rho), take = T(1 - rho), eps = T(epsilon), decay = T(weight_decay);
    over_weights<T>(count, [=](auto width, long at) {
        using V = Vec<T, decltype(width)::value>;
        V weight = load<V>(w + at);
        const V gradient = decayed(weight, load<V>(g + at), decay, rate, decoupled);
        const V s = keep * load<V>(square + at) + take * gradient * gradient;
        const V d = load<V>(delta + at);
        const V update = gradient * square_root(d + eps) / square_root(s + eps);
        store(square + at, s);
        store(delta + at, keep * d + take * update * update);
        store(w + at, weight - rate * update);
    });
}

template <typename T>
double sum_squares(const T* values, long count) {
    constexpr long kPiece = 4096;
    const long pieces = (count + kPiece - 1) / kPiece;
    double* partial = scratch_array<double>(kScratchShared0, pieces);
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (count > kParallelElements)
    for (long piece = 0; piece < pieces; ++piece) {
        const long last = (piece + 1) * kPiece < count ? (piece + 1) * kPiece : count;
        double sums[8] = {};
        long at = piece * kPiece;
        for (; at + 8 <= last; at += 8)
            for (int i = 0; i < 8; ++i) sums[i] += double(values[at + i]) * double(values[at + i]);
        for (; at < last; ++at) sums[0] += double(values[at]) * double(values[at]);
        partial[piece] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    double total = 0;
    for (long piece = 0; piece < pieces; ++piece) total += partial[piece];
    return total;
}

template <typename T>
void scale(T* values, long count, double factor) {
    const T by = T(factor);
    over_elements(count, [&](long first, long last) {
        for (long at = first; at < last; ++at) values[at] *= by;
    });
}

}  // namespace ringlet::RINGLET_ISA
