// CANN 8.1. C++: handles with owners, errors as exceptions, and threads that copy to the device and back.
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "acl/acl.h"

namespace {

class AclFailure : public std::runtime_error {
  public:
    AclFailure(const char *call, aclError code)
        : std::runtime_error(std::string(call) + " returned " + std::to_string(code)), code_(code) {
    }
    aclError code() const {
        return code_;
    }

  private:
    aclError code_;
};

#define WELL(call)                                                                                             \
    do {                                                                                                       \
        const aclError answer = (call);                                                                        \
        if (answer != ACL_SUCCESS) {                                                                           \
            throw AclFailure(#call, answer);                                                                   \
        }                                                                                                      \
    } while (false)

void expect(bool condition, const char *what) {
    if (!condition) {
        throw std::logic_error(what);
    }
}

class Session {
  public:
    explicit Session(int device) : device_(device) {
        WELL(aclInit(nullptr));
        WELL(aclrtSetDevice(device_));
    }
    ~Session() {
        (void)aclrtResetDevice(device_);
        (void)aclFinalize();
    }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

  private:
    int device_;
};

struct DestroyStream {
    void operator()(void *stream) const {
        (void)aclrtDestroyStream(stream);
    }
};
struct FreeDevice {
    void operator()(void *memory) const {
        (void)aclrtFree(memory);
    }
};
using Stream = std::unique_ptr<void, DestroyStream>;
using Memory = std::unique_ptr<void, FreeDevice>;

static_assert(std::is_same<aclrtStream, void *>::value, "expected aclrtStream to be void *");

Stream make_stream() {
    aclrtStream made = nullptr;
    WELL(aclrtCreateStream(&made));
    return Stream(made);
}

template <typename T> Memory make_memory(std::size_t count) {
    void *made = nullptr;
    WELL(aclrtMalloc(&made, count * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST));
    return Memory(made);
}

template <typename T> std::vector<T> round_trip(const std::vector<T> &values) {
    const std::size_t size = values.size() * sizeof(T);
    std::vector<T> back(values.size());
    const Stream stream = make_stream();
    const Memory memory = make_memory<T>(values.size());
    WELL(aclrtMemcpy(memory.get(), size, values.data(), size, ACL_MEMCPY_HOST_TO_DEVICE));
    WELL(aclrtMemcpyAsync(back.data(), size, memory.get(), size, ACL_MEMCPY_DEVICE_TO_HOST, stream.get()));
    WELL(aclrtSynchronizeStream(stream.get()));
    return back;
}

void in_threads() {
    aclrtContext context = nullptr;
    WELL(aclrtGetCurrentContext(&context));
    std::vector<std::thread> threads;
    std::vector<std::string> failures(6);
    for (std::size_t i = 0; i < failures.size(); i++) {
        threads.emplace_back([&failures, i, context] {
            try {
                WELL(aclrtSetCurrentContext(context));
                const std::vector<double> values(1000 + i, static_cast<double>(i) / 3);
                expect(round_trip(values) == values, "a round trip on a thread changed the values");
            } catch (const std::exception &error) {
                failures[i] = error.what();
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (const auto &failure : failures) {
        expect(failure.empty(), failure.c_str());
    }
}

void refused() {
    try {
        WELL(aclrtSetDevice(4096));
    } catch (const AclFailure &failure) {
        expect(failure.code() == 107001, "expected the code 107001 for a device that does not exist");
        const char *text = aclGetRecentErrMsg();
        expect(text != nullptr && std::strlen(text) > 0, "expected an error text, got none");
        return;
    }
    throw std::logic_error("aclrtSetDevice accepted a device that does not exist");
}

} // namespace

int main() {
    try {
        const Session session(0);
        const std::vector<int> values{1, 2, 3, -4};
        expect(round_trip(values) == values, "a round trip changed the values");
        in_threads();
        refused();
    } catch (const std::exception &error) {
        (void)std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
