// The skipping of text without Python around it, for test_skip_text.py: each scan by its name.

#include <cstdio>
#include <cstring>

#include "skip_text.h"

using namespace statetok;

namespace {

Scan find_scan(const char* name) {
  if (std::strcmp(name, "plain") == 0) return scan_plain;
#ifdef STATETOK_X86
  if (std::strcmp(name, "sse2") == 0) return scan_sse2;
#endif
#ifdef STATETOK_AVX2
  if (std::strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2")) return scan_avx2;
#endif
#ifdef STATETOK_NEON
  if (std::strcmp(name, "neon") == 0) return scan_neon;
#endif
  return nullptr;
}

}  // namespace

extern "C" int has_scan(const char* name) { return find_scan(name) != nullptr; }

// Writes the result to `out` and returns its length, or the refusal to `text` and returns -1.
extern "C" long insert_with(const char* scan, const int* ids, long n, const int* five, int* out,
                            char* text) {
  const Contract c{five[0], five[1], five[2], five[3], five[4]};
  try {
    Asking asking;
    Plan plan;
    const auto size = static_cast<std::size_t>(n);
    const auto answer = asking.ask(ArrayIds<int>(ids, size), c, find_scan(scan));
    plan.take(asking.question(), answer);
    return apply(plan.edits, plan.ids.data(), ids, 0, size, out) - out;
  } catch (const std::invalid_argument& refusal) {
    std::snprintf(text, 300, "%s", refusal.what());
    return -1;
  }
}
