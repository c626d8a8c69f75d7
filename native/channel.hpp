// Collectives between the processes of one machine through memory that all of them map.
//
// Layout (ringlet/comm/channel/layout.py writes it down for Python): a header with the word that ends everything, one
// control block per rank, two data slots per rank. A *round* is: every rank writes what the others shall see into its own
// block and slot, raises its own sequence number, waits until all others have raised theirs, reads. A rank that starts round
// s + 2 knows that all have arrived in round s + 1 and so have read everything of round s: two slots in turn are enough.
//
// The first round of every collective also carries its signature. All ranks see all signatures, so if they differ all ranks
// leave the collective after that round, still in step.
//
// Order of memory. Three shapes must hold on every processor; native/litmus.hpp hammers each of them, docs/portability.md says how
// to run that.
//
// 1. Message. A rank writes block and slot, then its number (kArrive, which releases). Another rank reads that number (kReached,
//    which acquires), then block and slot. If it finds the number of the round or of a later one, store and load synchronise,
//    and it sees all that was written before. So does what other threads have written for the rank (a kernel's team ends with a
//    barrier), and what lies in other shared memory: a round orders everything. Data are never written past the caches but into
//    memory of the caller, and that ends with a fence (combine.hpp, finish_stream).
// 2. Reuse. A rank reads the slots of round s, then writes its number of round s + 1. A rank overwrites its slot of round s for
//    round s + 2 after it has read that number. It is the same pair: a release keeps reads before it as it keeps writes, an
//    acquire keeps writes after it as it keeps reads. Acquire and release are enough for 1 and 2, between each two ranks by
//    themselves: what a rank reads of another it reads after that one's own number.
// 3. Sleep. A rank that arrives writes its number, then reads how many sleep on it (`sleepers`). A rank that goes to sleep raises
//    `sleepers`, then reads the number. Each writes one word and then reads the other's, and one of them at least must see the
//    other's write; else one sleeps and no one wakes it. Acquire and release do not promise that (on x86 a plain store may
//    wait in its buffer while the load goes ahead): these four accesses are sequentially consistent. It is why kArrive is more
//    than a release. Between the last look and the sleep the kernel compares once more, under the lock that waking takes too.
//    A missed waking would cost 50 ms, the limit of a sleep, and no wrong result.
//
// The word that ends everything carries no data but itself: that it is atomic is enough. A rank sees it within 50 ms.
// What Python writes (`process`, `closed`) is looked at by a rank that has waited long; ringlet/comm/channel/layout.py orders it.
//
// The twin in NumPy (ringlet/comm/channel/reference.py) writes and reads numbers as aligned words, which no processor tears. It
// needs a full fence between data and number when it writes, and between number and data when it reads; fence.py finds one. It
// never sleeps in the kernel, so shape 3 does not arise; a compiled rank that sleeps on its number looks again after 50 ms.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "kernels.hpp"

namespace ringlet {

constexpr long kMaxText = 128, kHeaderBytes = 128, kRankBytes = 384, kPageBytes = 4096;

// The memory orders of the three shapes.
constexpr std::memory_order kArrive = std::memory_order_seq_cst, kReached = std::memory_order_acquire,
                            kSleepOrder = std::memory_order_seq_cst;

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
        return static_cast<int32_t>(block(peer).sequence.load(kReached) - sequence_) >= 0;
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
