#pragma once
// Many sequences in one flat array: rows of ids and the offsets where they begin and end, planned
// and copied in threads.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "skip_text.h"

namespace statetok {

// Rows that one thread works on, one after the other. The places in its plan are places in the
// whole array, so that all its rows are copied as if they were one sequence. Aligned, so that no
// two threads write to one line of the cache.
struct alignas(64) Part {
  std::size_t first_row = 0, end_row = 0;
  std::size_t begin = 0, end = 0;  // of its ids
  std::size_t added_before = 0;    // by the parts in front of it
  Plan plan;
  bool keeps_edits = true;  // false: they took too much memory, and are found again row by row
  std::size_t row = 0;      // the one that is worked on
  std::exception_ptr fault = nullptr;
};

// The caller has checked that the offsets begin with 0, never decrease and end with the number of
// ids. Another thread may write to them at any time all the same. So each row begins where the one
// before it ended, and where memory depends on an offset, it is checked when it is read.
template <typename Id, typename Offset>
class Ragged {
 public:
  Ragged(const Id* ids, std::size_t size, const Offset* offsets, std::size_t rows,
         const Contract& c, Scan scan)
      : ids_(ids), size_(size), offsets_(offsets), rows_(rows), contract_(c), scan_(scan) {}

  // Plans the rows in up to `threads` threads. added[row + 1] becomes the number of ids added to
  // the rows of the same part up to that one. The first part with a fault has the first bad row.
  std::vector<Part> plan(std::size_t threads, Offset* added) const {
    std::vector<Part> parts = cut(threads);
    // All edits may take a tenth of the input; a vector that grows is there three times for a
    // moment, once as it was and twice as large.
    const std::size_t budget = size_ * sizeof(Id) / 10 / 3 / parts.size();
    in_threads(parts, [&](Part& part) { plan(part, budget, added); });
    std::size_t before = 0;
    for (Part& part : parts) {
      part.added_before = before;
      before += part.plan.added;
    }
    return parts;
  }

  // Copies the rows with what was added; `ends` is what `plan` was given as `added`. `sources`, if
  // it is wanted, gets the place in the whole array of each id, -1 for one that was added.
  void apply(std::vector<Part>& parts, Id* to, Offset* ends, std::int64_t* sources) const {
    ends[0] = 0;
    in_threads(parts, [&](Part& part) {
      const std::size_t first = part.begin + part.added_before;
      apply(part, to + first, ends, sources == nullptr ? nullptr : sources + first);
    });
  }

 private:
  struct Changed : std::runtime_error {
    Changed() : std::runtime_error("an array was written to while it was read") {}
  };

  // Parts of about the same number of ids, and no more of them than are worth a thread.
  std::vector<Part> cut(std::size_t threads) const {
    constexpr std::size_t kWorthAThread = 1 << 15;
    const std::size_t n = std::min({threads, size_ / kWorthAThread + 1, rows_ + 1});
    std::vector<Part> parts(n);
    for (std::size_t i = 0; i < n; ++i) {
      Part& part = parts[i];
      if (i > 0) part.first_row = parts[i - 1].end_row, part.begin = parts[i - 1].end;
      part.end_row = rows_, part.end = size_;
      if (i + 1 == n) break;
      const auto target = static_cast<Offset>(size_ / n * (i + 1));
      const Offset* const end =
          std::lower_bound(offsets_ + part.first_row, offsets_ + rows_, target);
      part.end_row = static_cast<std::size_t>(end - offsets_);
      part.end = static_cast<std::size_t>(*end);
      if (part.begin > part.end || part.end > size_) throw Changed();
    }
    return parts;
  }

  void plan(Part& part, std::size_t budget, Offset* added) const {
    Asking asking;
    std::size_t fit = 0;  // so many of the plan's ids are known to fit
    std::size_t begin = part.begin;
    for (part.row = part.first_row; part.row < part.end_row; ++part.row) {
      begin = take_row(asking, part, begin, part.plan);
      for (; fit < part.plan.ids.size(); ++fit)
        if (!fits<Id>(part.plan.ids[fit])) throw DoesNotFit{part.plan.ids[fit]};
      added[part.row + 1] = static_cast<Offset>(part.plan.added);
      if (!part.keeps_edits) {
        part.plan.edits.clear();
      } else if (part.plan.edits.capacity() * sizeof(Edit) > budget) {
        part.keeps_edits = false;
        Edits().swap(part.plan.edits);
      }
    }
    if (begin != part.end) throw Changed();
  }

  void apply(Part& part, Id* to, Offset* ends, std::int64_t* sources) const {
    for (std::size_t row = part.first_row; row < part.end_row; ++row)
      ends[row + 1] += offsets_[row + 1] + static_cast<Offset>(part.added_before);
    if (part.keeps_edits) {
      statetok::apply(part.plan.edits, part.plan.ids.data(), ids_, part.begin, part.end, to);
      if (sources != nullptr) apply_to_places(part.plan.edits, part.begin, part.end, sources);
      return;
    }
    const Id* const result_end = to + (part.end - part.begin) + part.plan.added;
    Asking asking;
    std::size_t begin = part.begin;
    for (part.row = part.first_row; part.row < part.end_row; ++part.row) {
      Plan plan;
      const std::size_t end = take_row(asking, part, begin, plan);
      if (end - begin + plan.added > static_cast<std::size_t>(result_end - to)) throw Changed();
      to = statetok::apply(plan.edits, plan.ids.data(), ids_, begin, end, to);
      if (sources != nullptr) sources = apply_to_places(plan.edits, begin, end, sources);
      begin = end;
    }
    if (to != result_end) throw Changed();
  }

  // Takes up what the header adds to the row of the part, which begins at `begin`; returns where
  // it ends.
  std::size_t take_row(Asking& asking, const Part& part, std::size_t begin, Plan& plan) const {
    const auto end = static_cast<std::size_t>(offsets_[part.row + 1]);
    if (end < begin || end > part.end) throw Changed();
    const std::vector<int> answer =
        asking.ask(ArrayIds<Id>(ids_ + begin, end - begin), contract_, scan_);
    plan.take(asking.question(), answer, begin);
    return end;
  }

  // Does the work of each part in a thread of its own, that of the last one in this thread.
  template <typename Work>
  static void in_threads(std::vector<Part>& parts, const Work& work) {
    const auto guarded = [&work](Part& part) {
      try {
        work(part);
      } catch (...) {
        part.fault = std::current_exception();
      }
    };
    std::vector<std::thread> threads;
    threads.reserve(parts.size());
    std::size_t started = 0;
    try {
      for (; started + 1 < parts.size(); ++started)
        threads.emplace_back([&guarded, &part = parts[started]] { guarded(part); });
    } catch (...) {
      // No more threads are to be had, or no memory for one: what is left is done in this one.
    }
    for (std::size_t i = started; i < parts.size(); ++i) guarded(parts[i]);
    for (std::thread& thread : threads) thread.join();
  }

  const Id* ids_;
  std::size_t size_;
  const Offset* offsets_;
  std::size_t rows_;
  Contract contract_;
  Scan scan_;
};

}  // namespace statetok
