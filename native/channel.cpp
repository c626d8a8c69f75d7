// Collectives through shared memory: see channel.hpp for the protocol.
#include "channel.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <vector>

#include <sched.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ringlet {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWatchInterval = std::chrono::milliseconds(50);

// Up to so many bytes every rank combines everything itself; beyond, sharing the work is worth a second round.
constexpr long kMaxWholeBytes = 16 << 10;
// Results that the caches would not hold until they are read are written past them.
constexpr long kStreamBytes = 16 << 20;

inline void pause_processor() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

#if defined(__linux__)
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen) {
    const timespec limit{0, std::chrono::nanoseconds(kWatchInterval).count()};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}
#else
void sleep_on(std::atomic<uint32_t>&, uint32_t) {
    const timespec moment{0, 50'000};
    nanosleep(&moment, nullptr);
}

void wake_all(std::atomic<uint32_t>&) {}
#endif

long slots_offset(int size) {
    const long used = kHeaderBytes + size * kRankBytes;
    return (used + kPageBytes - 1) / kPageBytes * kPageBytes;
}

void move(char* target, const char* source, long bytes, bool stream = false) {
    current_table().copy(target, source, bytes, stream);
}

// Part of [0, count) that belongs to a rank, cut at multiples of a cache line's worth of the smallest element.
std::pair<long, long> part_of(long count, int rank, int size) {
    const long share = (count + 64l * size - 1) / (64l * size) * 64;
    return {std::min(count, share * rank), std::min(count, share * (rank + 1))};
}

}  // namespace

struct Channel::Turn {
    explicit Turn(Channel& channel) : channel(channel) {
        if (channel.busy_.exchange(true)) throw ChannelBusy();
    }
    ~Turn() { channel.busy_.store(false); }
    Channel& channel;
};

long Channel::bytes_for(int size, long slot_bytes) { return slots_offset(size) + 2l * size * slot_bytes; }

Channel::Channel(char* memory, int rank, int size, long slot_bytes, Patience patience, Watch watch)
    : memory_(memory), slots_(memory + slots_offset(size)), rank_(rank), size_(size), slot_bytes_(slot_bytes), patience_(patience),
      watch_(std::move(watch)) {}

// -- waiting ----------------------------------------------------------------------------------------------------------
void Channel::meet() {
    ControlBlock& own = block(rank_);
    own.sequence.store(++sequence_, kArrive);
    if (own.sleepers.load(kSleepOrder) != 0) wake_all(own.sequence);
    for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_) wait_for(peer);
}

void Channel::wait_for(int peer) {
    for (int i = 0; i < patience_.spins; ++i) {
        if (reached(peer)) return;
        pause_processor();
    }
    for (int i = 0; i < patience_.yields; ++i) {
        if (reached(peer)) return;
        sched_yield();
    }
    sleep_until_reached(peer);
}

void Channel::sleep_until_reached(int peer) {
    ControlBlock& other = block(peer);
    auto last_look = Clock::now();
    while (!reached(peer)) {
        other.sleepers.fetch_add(1, kSleepOrder);
        const uint32_t seen = other.sequence.load(kSleepOrder);
        if (static_cast<int32_t>(seen - sequence_) < 0) sleep_on(other.sequence, seen);
        other.sleepers.fetch_sub(1, kSleepOrder);
        const auto now = Clock::now();
        if (failed() >= 0 || now - last_look >= kWatchInterval) {
            if (reached(peer)) return;
            look_up(peer);
            last_look = now;
        }
    }
}

void Channel::look_up(int peer) {
    try {
        const int culprit = failed();  // once: it may change during the call, and then the next look tells
        watch_(peer, culprit);
        if (culprit >= 0) throw std::runtime_error("a rank has failed");
    } catch (...) {
        fail(rank_);  // whoever waits for this rank would wait for ever
        throw;
    }
}

void Channel::fail(int culprit) {
    uint32_t nobody = 0;
    failure().compare_exchange_strong(nobody, static_cast<uint32_t>(culprit + 1));
    for (int peer = 0; peer < size_; ++peer) wake_all(block(peer).sequence);
}

// -- rounds -----------------------------------------------------------------------------------------------------------
int Channel::open(Signature signature, int64_t value) {
    if (failed() >= 0) look_up(rank_);
    ControlBlock& own = block(rank_);
    first_ = (sequence_ + 1) & 1;
    const long length = std::min(signature.length - 8, kMaxText);
    std::memcpy(&own.digest[first_], signature.bytes, 8);
    std::memcpy(own.text[first_], signature.bytes + 8, length);
    own.text_length[first_] = static_cast<uint16_t>(length);
    own.value[first_] = value;
    meet();
    for (int peer = 1; peer < size_; ++peer)
        if (block(peer).digest[first_] != block(0).digest[first_]) {
            next();
            return peer;
        }
    return -1;
}

Signature Channel::text_of(int peer) const {
    const ControlBlock& of = block(peer);
    return {of.text[first_], std::min<long>(of.text_length[first_], kMaxText)};
}

// For each chunk of `total`: write(offset, length), one round, read(offset, length).
template <typename Write, typename Read>
int Channel::rounds(Signature signature, long total, long chunk, Write write, Read read) {
    Turn guard(*this);
    for (long offset = 0; offset == 0 || offset < total; offset += chunk) {
        const long length = std::min(chunk, total - offset);
        write(offset, length);
        if (offset == 0) {
            const int stranger = open(signature);
            if (stranger >= 0) return stranger;
        } else {
            meet();
        }
        read(offset, length);
        next();
    }
    return -1;
}

void Channel::combine_slots(Element element, Combination how, const char* own, long offset, long count, const CombineTargets& to) const {
    const void* few[16];
    std::vector<const void*> many(size_ > 16 ? size_ : 0);
    const void** sources = size_ > 16 ? many.data() : few;
    for (int peer = 0; peer < size_; ++peer) sources[peer] = slot(peer) + offset;
    if (own != nullptr) sources[rank_] = own;
    current_table().combine(element, how, sources, size_, count, to);
}

// -- collectives ------------------------------------------------------------------------------------------------------
int Channel::exchange(Signature signature, int64_t value, int64_t* values) {
    Turn guard(*this);
    const int stranger = open(signature, value);
    if (stranger >= 0) return stranger;
    if (values != nullptr)
        for (int peer = 0; peer < size_; ++peer) values[peer] = block(peer).value[first_];
    next();
    return -1;
}

int Channel::allreduce(Signature signature, Element element, Combination how, const void* in, void* out, long count) {
    const bool whole = count * kElementBytes[element] <= kMaxWholeBytes;
    const auto reduce = whole ? &Channel::reduce_whole : &Channel::reduce_parts;
    return (this->*reduce)(signature, element, how, static_cast<const char*>(in), static_cast<char*>(out), count);
}

// Every rank combines everything: one round.
int Channel::reduce_whole(Signature signature, Element element, Combination how, const char* in, char* out, long count) {
    const long width = kElementBytes[element];
    const auto write = [&](long offset, long length) { move(slot(rank_), in + offset * width, length * width); };
    const auto read = [&](long offset, long length) {
        combine_slots(element, how, nullptr, 0, length, {out + offset * width, nullptr, false});
    };
    return rounds(signature, count, slot_bytes_ / width, write, read);
}

// Every rank combines its part of a chunk and hands the result out. While it does so for chunk k, it already gives its values
// of chunk k + 1 and takes the results of chunk k - 1: one round per chunk. In its own slot a rank has no use for its own
// values, so there its result lies.
int Channel::reduce_parts(Signature signature, Element element, Combination how, const char* in, char* out, long count) {
    Turn guard(*this);
    const long width = kElementBytes[element], share = slot_bytes_ / width / size_ / 64 * 64;
    const long chunk = share * size_, chunks = (count + chunk - 1) / chunk;
    const bool stream = count * width >= kStreamBytes;
    const uint32_t first_turn = turn_;
    const auto begin = [&](long k) {
        turn_ = first_turn + static_cast<uint32_t>(k);
        return k * chunk;
    };
    const auto part = [&](long k, int peer) { return part_of(std::min(chunk, count - k * chunk), peer, size_); };
    const auto place = [&](int of, int peer) { return slot(of) + peer * share * width; };  // the same in every chunk
    const auto give = [&](long k) {
        const char* from = in + begin(k) * width;
        for (int peer = 0; peer < size_; ++peer)
            if (const auto [start, stop] = part(k, peer); peer != rank_)
                move(place(rank_, peer), from + start * width, (stop - start) * width);
    };
    const auto combine = [&](long k) {
        const auto [start, stop] = part(k, rank_);
        const long at = (begin(k) + start) * width;
        combine_slots(element, how, in + at, rank_ * share * width, stop - start, {out + at, place(rank_, rank_), stream});
    };
    const auto take = [&](long k) {
        char* to = out + begin(k) * width;
        for (int peer = 0; peer < size_; ++peer)
            if (const auto [start, stop] = part(k, peer); peer != rank_)
                move(to + start * width, place(peer, peer), (stop - start) * width, stream);
    };
    give(0);
    const int stranger = open(signature);
    if (stranger >= 0) return stranger;
    for (long k = 0; k <= chunks; ++k) {
        if (k + 1 < chunks) give(k + 1);
        if (k < chunks) combine(k);
        if (k > 0) take(k - 1);
        if (k < chunks) meet();
    }
    begin(chunks);
    return -1;
}

int Channel::broadcast(Signature signature, const char* in, char* out, long bytes, int root) {
    const bool stream = bytes >= kStreamBytes;
    const auto write = [&](long offset, long length) {
        if (rank_ == root) move(slot(root), in + offset, length);
    };
    const auto read = [&](long offset, long length) {
        if (rank_ != root)
            move(out + offset, slot(root), length, stream);
        else if (out != in)
            move(out + offset, in + offset, length, stream);
    };
    return rounds(signature, bytes, slot_bytes_, write, read);
}

int Channel::allgather(Signature signature, const char* in, char* out, const int64_t* bytes) {
    long total = 0;
    std::vector<long> starts;
    for (int peer = 0; peer < size_; ++peer) starts.push_back(total), total += bytes[peer];
    const bool stream = total >= kStreamBytes;
    const auto length_of = [&](int peer, long offset, long length) { return std::clamp<long>(bytes[peer] - offset, 0, length); };
    const auto write = [&](long offset, long length) { move(slot(rank_), in + offset, length_of(rank_, offset, length)); };
    const auto read = [&](long offset, long length) {
        for (int peer = 0; peer < size_; ++peer)
            if (const long count = length_of(peer, offset, length))
                move(out + starts[peer] + offset, peer == rank_ ? in + offset : slot(peer), count, stream);
    };
    return rounds(signature, *std::max_element(bytes, bytes + size_), slot_bytes_, write, read);
}

int Channel::reduce_scatter(Signature signature, Element element, Combination how, const char* in, char* out, const int64_t* counts) {
    const long width = kElementBytes[element];
    std::vector<long> starts;
    for (long peer = 0, total = 0; peer < size_; total += counts[peer], ++peer) starts.push_back(total);
    const long share = slot_bytes_ / size_ / 64 * 64, chunk = share / width;
    const auto length_of = [&](int peer, long offset, long length) { return std::clamp<long>(counts[peer] - offset, 0, length); };
    const auto write = [&](long offset, long length) {
        for (int peer = 0; peer < size_; ++peer)
            if (peer != rank_)
                move(slot(rank_) + peer * share, in + (starts[peer] + offset) * width, length_of(peer, offset, length) * width);
    };
    const auto read = [&](long offset, long length) {
        const char* own = in + (starts[rank_] + offset) * width;
        combine_slots(element, how, own, rank_ * share, length_of(rank_, offset, length), {out + offset * width, nullptr, false});
    };
    return rounds(signature, *std::max_element(counts, counts + size_), chunk, write, read);
}

int Channel::alltoall(Signature signature, const char* in, char* out, const int64_t* matrix) {
    const auto bytes = [&](int from, int to) { return static_cast<long>(matrix[from * size_ + to]); };
    std::vector<long> sends, receives;
    long sent = 0, received = 0;
    for (int peer = 0; peer < size_; ++peer) {
        sends.push_back(sent), sent += bytes(rank_, peer);
        receives.push_back(received), received += bytes(peer, rank_);
    }
    const long share = slot_bytes_ / size_ / 64 * 64;
    const auto write = [&](long offset, long length) {
        for (int peer = 0; peer < size_; ++peer)
            if (peer != rank_)
                move(slot(rank_) + peer * share, in + sends[peer] + offset, std::clamp<long>(bytes(rank_, peer) - offset, 0, length));
    };
    const auto read = [&](long offset, long length) {
        for (int peer = 0; peer < size_; ++peer) {
            const char* source = peer == rank_ ? in + sends[peer] + offset : slot(peer) + rank_ * share;
            move(out + receives[peer] + offset, source, std::clamp<long>(bytes(peer, rank_) - offset, 0, length));
        }
    };
    return rounds(signature, *std::max_element(matrix, matrix + size_ * size_), share, write, read);
}

}  // namespace ringlet
