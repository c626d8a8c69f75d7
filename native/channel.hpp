// Collectives between the processes of one machine through memory that all of them map.
//
// Layout (ringlet/comm/channel/layout.py writes it down for Python): a header with the word that ends everything, one
// control block per rank, two data slots per rank. A *round* is: every rank writes what the others shall see into its own
// block and slot, raises its own sequence number, waits until all others have raised theirs, reads. A rank that starts round
// s + 2 knows that all have arrived in round s + 1 and so have read everything of round s: two slots in turn are enough.
//
// The first round of every collective also carries its signature. All ranks see all signatures, so if they differ all ranks
// leave the collective after that round, still in step.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "kernels.hpp"

namespace ringlet {

constexpr long kMaxText = 128, kHeaderBytes = 128, kRankBytes = 384, kPageBytes = 4096;

struct alignas(64) ControlBlock {
    std::atomic<uint32_t> sequence;
    std::atomic<uint32_t> sleepers;
    uint64_t digest[2];
    int64_t value[2];
    uint16_t text_length[2];
    uint32_t process, closed;  // these and the namespace: written and read by Python alone
    uint64_t process_namespace;
    alignas(64) char text[2][kMaxText];
};
static_assert(sizeof(ControlBlock) <= kRankBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// What a rank calls: 8 bytes that differ whenever calls differ, then a description for people.
struct Signature {
    const char* bytes;
    long length;
};

struct Patience {
    int spins, yields;  // how often to look before giving up the processor, and before sleeping
};

// A collective was called while another one of the same channel runs.
struct ChannelBusy {};

class Channel {
public:
    // Called every now and then while this rank waits for `peer`, and when rank `failed` (or -1) has ended everything:
    // throws to leave the collective, and must throw if a rank has failed.
    using Watch = std::function<void(int peer, int failed)>;

    static long bytes_for(int size, long slot_bytes);

    Channel(char* memory, int rank, int size, long slot_bytes, Patience patience, Watch watch);

    // All collectives return -1, or the lowest rank whose signature differs from that of rank 0.
    int exchange(Signature, int64_t value, int64_t* values);  // a barrier that also carries one number of each rank
    int allreduce(Signature, Element, Combination, const void* in, void* out, long count);
    int broadcast(Signature, const char* in, char* out, long bytes, int root);
    int allgather(Signature, const char* in, char* out, const int64_t* bytes);                // bytes of each rank
    int reduce_scatter(Signature, Element, Combination, const char* in, char* out, const int64_t* counts);
    int alltoall(Signature, const char* in, char* out, const int64_t* matrix);  // bytes from (row) to (column)

    int rank() const { return rank_; }
    int size() const { return size_; }
    // What `peer` has called in the last first round.
    Signature text_of(int peer) const;
    void fail(int culprit);  // ends all waiting, for good
    int failed() const { return static_cast<int>(failure().load(std::memory_order_acquire)) - 1; }

private:
    struct Turn;  // one collective at a time

    std::atomic<uint32_t>& failure() const { return *reinterpret_cast<std::atomic<uint32_t>*>(memory_); }
    ControlBlock& block(int of) const { return *reinterpret_cast<ControlBlock*>(memory_ + kHeaderBytes + of * kRankBytes); }
    char* slot(int of) const { return slots_ + (2l * of + (turn_ & 1)) * slot_bytes_; }

    int open(Signature, int64_t value = 0);  // the first round
    void next() { ++turn_; }                 // to the other slots
    void meet();                             // arrive and wait for all
    void wait_for(int peer);
    void sleep_until_reached(int peer);
    void look_up(int peer);
    bool reached(int peer) const {
        return static_cast<int32_t>(block(peer).sequence.load(std::memory_order_acquire) - sequence_) >= 0;
    }
    template <typename Write, typename Read>
    int rounds(Signature, long total, long chunk, Write write, Read read);
    int reduce_whole(Signature, Element, Combination, const char* in, char* out, long count);
    int reduce_parts(Signature, Element, Combination, const char* in, char* out, long count);
    // `own` takes the place of this rank's slot, if it is given.
    void combine_slots(Element, Combination, const char* own, long offset, long count, const CombineTargets&) const;

    char* memory_;
    char* slots_;
    int rank_, size_;
    long slot_bytes_;
    Patience patience_;
    Watch watch_;
    uint32_t sequence_ = 0, turn_ = 0, first_ = 0;
    std::atomic<bool> busy_{false};
};

}  // namespace ringlet
