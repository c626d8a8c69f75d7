// Litmus tests: see litmus.hpp.
#include "litmus.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <sched.h>
#if defined(__linux__)
#include <pthread.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "channel.hpp"

namespace ringlet {

namespace {

constexpr long kCells = 64;
constexpr int kSpins = 4000;

// The words of a round, each in lines of its own (some processors fetch two at once).
struct Cell {
    alignas(128) std::atomic<uint32_t> data;
    alignas(128) std::atomic<uint32_t> sequence;
    alignas(128) std::atomic<uint32_t> sleepers;
};

// The memory orders of each access.
struct Orders {
    std::memory_order data, arrive, reached, sleep;
};

constexpr Orders orders_of(LitmusOrder order) {
    constexpr auto relaxed = std::memory_order_relaxed;
    return order == kAsChannel ? Orders{relaxed, kArrive, kReached, kSleepOrder} : Orders{relaxed, relaxed, relaxed, relaxed};
}

template <LitmusOrder Order>
inline void write_data(std::atomic<uint32_t>& word, uint32_t value) {
#if defined(__x86_64__)
    if constexpr (Order == kStreamed) return _mm_stream_si32(reinterpret_cast<int*>(&word), static_cast<int>(value));
#endif
    word.store(value, orders_of(Order).data);
}

// What each side does in a round: `number` is new in it. Gives whether this side saw what makes a violation if both did.
template <LitmusShape Shape, LitmusOrder Order>
inline bool first_side(Cell& cell, uint32_t number, uint32_t earlier) {
    constexpr Orders how = orders_of(Order);
    if constexpr (Shape == kMessage) {
        write_data<Order>(cell.data, number);
        cell.sequence.store(number, how.arrive);
        return true;
    } else if constexpr (Shape == kReuse) {
        const uint32_t seen = cell.data.load(how.data);
        cell.sequence.store(number, how.arrive);
        return seen == number;
    } else {
        cell.sequence.store(number, how.arrive);
        return cell.sleepers.load(how.sleep) == earlier;
    }
}

template <LitmusShape Shape, LitmusOrder Order>
inline bool second_side(Cell& cell, uint32_t number) {
    constexpr Orders how = orders_of(Order);
    if constexpr (Shape == kMessage) {
        const bool arrived = cell.sequence.load(how.reached) == number;
        return arrived & (cell.data.load(how.data) != number);
    } else if constexpr (Shape == kReuse) {
        const bool arrived = cell.sequence.load(how.reached) == number;
        write_data<Order>(cell.data, number);
        return arrived;
    } else {
        cell.sleepers.fetch_add(1, how.sleep);
        return cell.sequence.load(how.sleep) != number;
    }
}

// Both threads come here before each round; then each waits a little, another time in each round, so that they meet in all ways.
class Start {
public:
    void wait(int side, uint32_t number) {
        ready_[side].value.store(number, std::memory_order_release);
        for (int spins = 0; ready_[1 - side].value.load(std::memory_order_acquire) < number; ++spins)
            if (spins >= kSpins) sched_yield();
        const uint32_t delay = (number * (side == 0 ? 2654435761u : 2246822519u)) >> 27;
        for (uint32_t i = 0; i < delay; ++i) asm volatile("");
    }

private:
    struct alignas(128) Ready {
        std::atomic<uint32_t> value{0};
    };
    Ready ready_[2];
};

// Two processors that this process may use, or none.
std::array<int, 2> two_processors() {
    std::array<int, 2> found{-1, -1};
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return found;
    int count = 0;
    for (int processor = 0; processor < CPU_SETSIZE && count < 2; ++processor)
        if (CPU_ISSET(processor, &allowed)) found[count++] = processor;
#endif
    return found;
}

void stay_on([[maybe_unused]] int processor) {
#if defined(__linux__)
    if (processor < 0) return;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(processor, &only);
    pthread_setaffinity_np(pthread_self(), sizeof(only), &only);
#endif
}

template <LitmusShape Shape, LitmusOrder Order>
long run(long rounds) {
    const auto cells = std::make_unique<Cell[]>(kCells);  // all zero
    const std::array<int, 2> processors = two_processors();
    std::vector<uint8_t> saw[2] = {std::vector<uint8_t>(rounds), std::vector<uint8_t>(rounds)};
    Start start;
    const auto side = [&](int which) {
        if (processors[1] >= 0) stay_on(processors[which]);
        for (long round = 0; round < rounds; ++round) {
            const uint32_t number = static_cast<uint32_t>(round) + 1, earlier = static_cast<uint32_t>(round / kCells);
            Cell& cell = cells[round % kCells];
            start.wait(which, number);
            saw[which][round] = which == 0 ? first_side<Shape, Order>(cell, number, earlier) : second_side<Shape, Order>(cell, number);
        }
    };
    std::thread other(side, 1), one(side, 0);
    one.join(), other.join();
    long violations = 0;
    for (long round = 0; round < rounds; ++round) violations += saw[0][round] & saw[1][round];
    return violations;
}

template <LitmusShape Shape>
long run(LitmusOrder order, long rounds) {
    switch (order) {
        case kAsChannel: return run<Shape, kAsChannel>(rounds);
        case kRelaxed: return run<Shape, kRelaxed>(rounds);
        default: return run<Shape, kStreamed>(rounds);
    }
}

}  // namespace

bool has_streamed_order() {
#if defined(__x86_64__)
    return true;
#else
    return false;
#endif
}

long count_violations(LitmusShape shape, LitmusOrder order, long rounds) {
    switch (shape) {
        case kMessage: return run<kMessage>(order, rounds);
        case kReuse: return run<kReuse>(order, rounds);
        default: return run<kSleep>(order, rounds);
    }
}

}  // namespace ringlet
