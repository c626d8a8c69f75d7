// Python bindings of the channel: buffers of any dtype, interpreter lock released while ranks work or wait.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "channel.hpp"
#include "litmus.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace ringlet {

namespace {

// The memory of a contiguous array or bytes, held while the object lives. Needs the interpreter lock at both ends.
class Memory {
public:
    Memory(nb::handle object, bool writable) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) != 0) throw nb::python_error();
    }
    ~Memory() { PyBuffer_Release(&view_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    char* data() const { return static_cast<char*>(view_.buf); }
    long bytes() const { return static_cast<long>(view_.len); }

private:
    Py_buffer view_;
};

void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

Signature signature_of(const nb::bytes& bytes) {
    require(bytes.size() >= 8, "a signature has at least 8 bytes");
    return {bytes.c_str(), static_cast<long>(bytes.size())};
}

Element element_of(int number) {
    require(number >= kFloat32 && number <= kUint64, "unknown element type");
    return static_cast<Element>(number);
}

Combination combination_of(int number) {
    require(number >= kSum && number <= kProduct, "unknown combination");
    return static_cast<Combination>(number);
}

class PythonChannel {
public:
    PythonChannel(nb::object memory, int rank, int size, long slot_bytes, int spins, int yields, nb::callable watch)
        : memory_(memory, true) {
        require(size >= 1 && rank >= 0 && rank < size, "expected 0 <= rank < size");
        require(slot_bytes >= 512l * size && slot_bytes % 64 == 0, "a slot has at least 512 bytes per rank, and a multiple of 64");
        require(memory_.bytes() >= Channel::bytes_for(size, slot_bytes), "the segment is too small for a channel");
        require(reinterpret_cast<uintptr_t>(memory_.data()) % 64 == 0, "a channel's memory is aligned to 64 bytes");
        channel_ = std::make_unique<Channel>(memory_.data(), rank, size, slot_bytes, Patience{spins, yields}, [watch](int peer, int failed) {
            nb::gil_scoped_acquire lock;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            watch(peer, failed);
        });
    }

    nb::object exchange(const nb::bytes& signature, int64_t value) {
        std::vector<int64_t> values(channel_->size());
        const Signature call = signature_of(signature);
        const int stranger = unlocked([&] { return channel_->exchange(call, value, values.data()); });
        return stranger >= 0 ? nb::int_(stranger) : nb::cast(values);
    }

    int barrier(const nb::bytes& signature) {
        const Signature call = signature_of(signature);
        return unlocked([&] { return channel_->exchange(call, 0, nullptr); });
    }

    int allreduce(const nb::bytes& signature, int element, int how, nb::handle array, nb::handle out) {
        const Memory from(array, false), to(out, true);
        const Element what = element_of(element);
        const Combination combination = combination_of(how);
        const Signature call = signature_of(signature);
        require(from.bytes() == to.bytes() && from.bytes() % kElementBytes[what] == 0, "array and out must have the same size");
        return unlocked([&] { return channel_->allreduce(call, what, combination, from.data(), to.data(), from.bytes() / kElementBytes[what]); });
    }

    int broadcast(const nb::bytes& signature, nb::handle array, nb::handle out, int root) {
        const Memory from(array, false), to(out, true);
        const Signature call = signature_of(signature);
        require(from.bytes() == to.bytes(), "array and out must have the same size");
        require(root >= 0 && root < channel_->size(), "no such root");
        return unlocked([&] { return channel_->broadcast(call, from.data(), to.data(), from.bytes(), root); });
    }

    int allgather(const nb::bytes& signature, nb::handle array, nb::handle out, const std::vector<int64_t>& bytes) {
        const Memory from(array, false), to(out, true);
        const Signature call = signature_of(signature);
        require(sized(bytes, 1) && from.bytes() == bytes[channel_->rank()] && to.bytes() == total(bytes), "sizes do not fit the arrays");
        return unlocked([&] { return channel_->allgather(call, from.data(), to.data(), bytes.data()); });
    }

    int reduce_scatter(const nb::bytes& signature, int element, int how, nb::handle array, nb::handle out, const std::vector<int64_t>& counts) {
        const Memory from(array, false), to(out, true);
        const Element what = element_of(element);
        const Combination combination = combination_of(how);
        const Signature call = signature_of(signature);
        require(sized(counts, 1) && from.bytes() == total(counts) * kElementBytes[what] &&
                    to.bytes() == counts[channel_->rank()] * kElementBytes[what],
                "counts do not fit the arrays");
        return unlocked([&] { return channel_->reduce_scatter(call, what, combination, from.data(), to.data(), counts.data()); });
    }

    int alltoall(const nb::bytes& signature, nb::handle array, nb::handle out, const std::vector<int64_t>& matrix) {
        const Memory from(array, false), to(out, true);
        const Signature call = signature_of(signature);
        const int size = channel_->size(), rank = channel_->rank();
        require(sized(matrix, size), "the matrix has one row per rank");
        int64_t sent = 0, received = 0;
        for (int peer = 0; peer < size; ++peer) sent += matrix[rank * size + peer], received += matrix[peer * size + rank];
        require(from.bytes() == sent && to.bytes() == received, "the matrix does not fit the arrays");
        return unlocked([&] { return channel_->alltoall(call, from.data(), to.data(), matrix.data()); });
    }

    nb::bytes text(int peer) const {
        const Signature call = channel_->text_of(checked(peer));
        return nb::bytes(call.bytes, call.length);
    }
    void fail(int culprit) { channel_->fail(checked(culprit)); }
    int failed() const { return channel_->failed(); }

private:
    template <typename Body>
    int unlocked(Body body) {
        try {
            nb::gil_scoped_release release;
            return body();
        } catch (const ChannelBusy&) {
            const nb::object kind = nb::module_::import_("ringlet.errors").attr("CommunicationError");
            PyErr_SetString(kind.ptr(), "two threads called collectives of one communicator at the same time: "
                                        "let one thread call, and start() the others");
            throw nb::python_error();
        }
    }

    bool sized(const std::vector<int64_t>& numbers, int rows) const {
        bool sound = static_cast<long>(numbers.size()) == static_cast<long>(rows) * channel_->size();
        for (const int64_t number : numbers) sound = sound && number >= 0;
        return sound;
    }

    static int64_t total(const std::vector<int64_t>& numbers) {
        int64_t sum = 0;
        for (const int64_t number : numbers) sum += number;
        return sum;
    }

    int checked(int peer) const {
        require(peer >= 0 && peer < channel_->size(), "no such rank");
        return peer;
    }

    Memory memory_;
    std::unique_ptr<Channel> channel_;
};

long litmus(const std::string& shape, const std::string& order, long rounds) {
    const auto place = [](const std::string& name, std::initializer_list<const char*> names, const char* message) {
        int index = 0;
        for (const char* known : names) {
            if (name == known) return index;
            ++index;
        }
        throw nb::value_error(message);
    };
    const int what = place(shape, {"message", "reuse", "sleep"}, "expected the shape message, reuse or sleep");
    const int how = place(order, {"channel", "relaxed", "streamed"}, "expected the order channel, relaxed or streamed");
    require(how != kStreamed || has_streamed_order(), "only x86 has an order 'streamed'");
    require(rounds > 0 && rounds < 1l << 31, "expected 0 < rounds < 2**31");
    nb::gil_scoped_release unlocked;
    return count_violations(static_cast<LitmusShape>(what), static_cast<LitmusOrder>(how), rounds);
}

}  // namespace

void bind_channel(nb::module_& m) {
    m.def("memory_fence", [] { std::atomic_thread_fence(std::memory_order_seq_cst); },
          "Orders all reads and writes before it and after it, as other processors see them.");
    m.def("litmus", &litmus, "shape"_a, "order"_a, "rounds"_a,
          "How often two threads saw what the channel's order of memory forbids: see native/litmus.hpp.");
    nb::class_<PythonChannel>(m, "Channel", "Collectives through shared memory; the contract is ringlet.comm.channel.contract.")
        .def(nb::init<nb::object, int, int, long, int, int, nb::callable>(), "memory"_a, "rank"_a, "size"_a, "slot_bytes"_a, "spins"_a,
             "yields"_a, "watch"_a)
        .def("exchange", &PythonChannel::exchange, "signature"_a, "value"_a)
        .def("barrier", &PythonChannel::barrier, "signature"_a)
        .def("allreduce", &PythonChannel::allreduce, "signature"_a, "element"_a, "how"_a, "array"_a, "out"_a)
        .def("broadcast", &PythonChannel::broadcast, "signature"_a, "array"_a, "out"_a, "root"_a)
        .def("allgather", &PythonChannel::allgather, "signature"_a, "array"_a, "out"_a, "sizes"_a)
        .def("reduce_scatter", &PythonChannel::reduce_scatter, "signature"_a, "element"_a, "how"_a, "array"_a, "out"_a, "counts"_a)
        .def("alltoall", &PythonChannel::alltoall, "signature"_a, "array"_a, "out"_a, "sizes"_a)
        .def("text", &PythonChannel::text, "rank"_a)
        .def("fail", &PythonChannel::fail, "culprit"_a)
        .def("failed", &PythonChannel::failed);
}

}  // namespace ringlet
