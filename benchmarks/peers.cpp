// What statetok is measured against: the header behind pybind11's own conversions, the header
// alone, a plain copy, and a call that does nothing.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <skip_text.h>
#include <state_tokens.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_TOGGLE_COLLECT
#endif

namespace py = pybind11;

namespace {

using Ids = py::array_t<int, py::array::c_style>;

// Seconds for one of `number` calls, by the clock of this language: nothing of Python is in it.
template <typename Work>
double seconds(int number, const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < number; ++i) work();
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
  return all.count() / number;
}

// The ids of a result are looked at, so that no compiler can leave the work out.
volatile int looked_at;

double header(const Ids& array, int vocab, int k, int eot, int user, int assistant, int number) {
  const std::vector<int> ids(array.data(), array.data() + array.size());
  return seconds(number, [&] {
    const auto result = ember::insert_state_blocks(ids, vocab, k, eot, user, assistant);
    looked_at = result.empty() ? 0 : result.back();
  });
}

double copy(const Ids& array, int number) {
  const auto n = static_cast<std::size_t>(array.size());
  return seconds(number, [&] {
    const std::unique_ptr<int[]> result(new int[n + 1]);
    std::memcpy(result.get(), array.data(), n * sizeof(int));
    looked_at = result[n / 2];
  });
}

// What the memory of the machine allows: a copy in two halves, each in a thread of its own.
void copy_in_two(const Ids& from, Ids to) {
  const auto half = static_cast<std::size_t>(from.size()) / 2;
  const int* const source = from.data();
  int* const target = to.mutable_data();
  std::thread first([&] { std::memcpy(target, source, half * sizeof(int)); });
  std::memcpy(target + half, source + half,
              (static_cast<std::size_t>(from.size()) - half) * sizeof(int));
  first.join();
}

// One scan of skip_text.h over all the ids, as it is used: piece by piece.
double scan(const std::string& name, const Ids& array, const statetok::Contract& c, int number) {
  statetok::Scan scan = statetok::scan_plain;
#ifdef STATETOK_X86
  if (name == "sse2") scan = statetok::scan_sse2;
#endif
#ifdef STATETOK_AVX2
  if (name == "avx2") scan = statetok::scan_avx2;
#endif
  const auto n = static_cast<std::size_t>(array.size());
  std::uint16_t hits[statetok::kPiece];
  return seconds(number, [&] {
    std::size_t found = 0;
    for (std::size_t first = 0; first < n; first += statetok::kPiece)
      found += scan(array.data() + first, std::min(statetok::kPiece, n - first), c, hits);
    looked_at = static_cast<int>(found);
  });
}

void nothing(const py::object&, const py::object&, const py::object&, const py::object&,
             const py::object&, const py::object&) {}

}  // namespace

PYBIND11_MODULE(peers, m) {
  m.def("plain_binding", &ember::insert_state_blocks);
  m.def("header", &header);
  m.def("copy", &copy);
  m.def("scan", [](const std::string& name, const Ids& array, int vocab, int k, int eot, int user,
                   int assistant, int number) {
    return scan(name, array, {vocab, k, eot, user, assistant}, number);
  });
  m.def("copy_in_two", &copy_in_two);
  m.def("nothing", &nothing);
  m.def("toggle_counting", [] { CALLGRIND_TOGGLE_COLLECT; });
}
