#include "common/cpu/runtime.h"

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace turbo_physai {
namespace {

// GNU OpenMP's entry to a parallel region; LLVM's and Intel's runtimes have it as well.
using GompParallel = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);

// Threads of an OpenMP runtime spin for a while after each region, so a pool beside torch's would
// compete with it for the cores: of 200 decoder-sized calls, each after an operator of torch on two
// threads, the fastest tenth took 1.4 ms on torch's runtime and 7 ms on own threads. So nothing is
// linked, and the caller hands over the runtime that torch has loaded.
std::atomic<GompParallel> gomp_parallel{nullptr};
std::atomic<pid_t> gomp_process{0};

std::atomic<int> isa_limit{static_cast<int>(Isa::avx512)};

Isa widest() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return Isa::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
  return Isa::baseline;
}

}  // namespace

Isa best_isa() {
  static const Isa machine = widest();
  return std::min(machine, static_cast<Isa>(isa_limit.load(std::memory_order_relaxed)));
}

void on_threads(int64_t threads, void (*work)(void*), void* context) {
  if (threads <= 1) return work(context);
  // A fork leaves the runtime's threads behind, and a region in the child would wait for them
  // forever. Threads of this one call cost some 20 us each, and work anywhere.
  const GompParallel region = gomp_parallel.load();
  if (region != nullptr && gomp_process.load() == getpid()) {
    return region(work, context, static_cast<unsigned>(threads), 0);
  }
  std::vector<std::thread> others;
  try {
    others.reserve(threads - 1);
    while (static_cast<int64_t>(others.size()) < threads - 1) others.emplace_back(work, context);
  } catch (...) {
    // No more threads to be had: those that run take all the tasks.
  }
  work(context);
  for (auto& thread : others) thread.join();
}

void advise_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t kPage = 4096;
  constexpr size_t kWorthIt = size_t{4} << 20;
  if (bytes < kWorthIt) return;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kPage * kPage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // advice: may fail
#endif
}

void zero(void* memory, size_t bytes, int64_t threads) {
  constexpr size_t kPiece = size_t{1} << 20;
  parallel((bytes + kPiece - 1) / kPiece, threads, [=](Tasks& tasks) {
    for (int64_t task; tasks.next(task);) {
      const size_t begin = task * kPiece;
      std::memset(static_cast<char*>(memory) + begin, 0, std::min(kPiece, bytes - begin));
    }
  });
}

}  // namespace turbo_physai

// Runs parallel loops on the OpenMP runtime whose GOMP_parallel is given; null: on own threads.
EXPORT void turbo_physai_use_openmp(void* parallel) {
  turbo_physai::gomp_process = getpid();
  turbo_physai::gomp_parallel = reinterpret_cast<turbo_physai::GompParallel>(parallel);
}

// Caps the instruction set (0 baseline, 1 AVX2, 2 AVX-512); returns the one now in use.
EXPORT int turbo_physai_limit_isa(int limit) {
  turbo_physai::isa_limit = limit;
  return static_cast<int>(turbo_physai::best_isa());
}

// The digest of the sources that this library was built from.
#define TEXT_OF(macro) #macro
#define VALUE_OF(macro) TEXT_OF(macro)
EXPORT const char* turbo_physai_sources() { return VALUE_OF(TURBO_PHYSAI_SOURCES); }
