#pragma once
// Where the header inserts ids, found by asking it only about the ids that it cares about.
//
// An id is of interest to the header if it is a control id (user, assistant, eot), negative, or
// past the vocabulary. Every other id is text: it is copied and changes nothing, except that it
// parts what stands before it from what stands behind it. So a run of text is put to the header
// as one id; the header answers for the short sequence; what it added there, it adds in the full
// sequence at the same place. Nothing here knows what the header decides or why.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#if defined(__SSE2__) || defined(_M_X64)
#define STATETOK_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) || defined(_M_ARM64)
#define STATETOK_NEON 1
#include <arm_neon.h>
#endif
#ifdef _MSC_VER
#include <intrin.h>
#endif

#include <state_tokens.h>  // <>: as a system header, so that our warnings are not its

namespace statetok {

struct Contract {
  int vocab, k, eot, user, assistant;
};

// With so much code around it, GCC would leave push_back in the header's loop a call, which a dense
// sequence pays for with every id.
#ifdef __GNUC__
__attribute__((flatten, noinline))
#endif
inline std::vector<int> ask_header(const std::vector<int>& ids, const Contract& c) {
  return ember::insert_state_blocks(ids, c.vocab, c.k, c.eot, c.user, c.assistant);
}

// -- scan: which ids are of interest ----------------------------------------------------------

// Ids are read and scanned this many at a time: the pieces stay in the first-level cache.
constexpr std::size_t kPiece = 1024;

inline bool is_of_interest(int id, const Contract& c) {
  return id == c.user || id == c.assistant || id == c.eot || id < 0 || id >= c.vocab;
}

inline unsigned lowest_bit(unsigned mask) {
#ifdef _MSC_VER
  unsigned long index;
  _BitScanForward(&index, mask);
  return index;
#else
  return static_cast<unsigned>(__builtin_ctz(mask));
#endif
}

// Each scan writes the indices of the ids of interest among `n` <= kPiece ids, in order, and
// returns how many there are.
using Scan = std::size_t (*)(const int* ids, std::size_t n, const Contract& c, std::uint16_t* hits);

inline std::size_t scan_from(std::size_t i, std::size_t count, const int* ids, std::size_t n,
                             const Contract& c, std::uint16_t* hits) {
  for (; i < n; ++i) {
    hits[count] = static_cast<std::uint16_t>(i);
    count += is_of_interest(ids[i], c);
  }
  return count;
}

inline std::size_t scan_plain(const int* ids, std::size_t n, const Contract& c,
                              std::uint16_t* hits) {
  return scan_from(0, 0, ids, n, c, hits);
}

// Writes i + the index of each bit that is set.
inline std::size_t take_hits(unsigned mask, std::size_t i, std::size_t count,
                             std::uint16_t* hits) {
  for (; mask != 0; mask &= mask - 1)
    hits[count++] = static_cast<std::uint16_t>(i + lowest_bit(mask));
  return count;
}

#ifdef STATETOK_X86

inline std::size_t scan_sse2(const int* ids, std::size_t n, const Contract& c,
                             std::uint16_t* hits) {
  const __m128i user = _mm_set1_epi32(c.user), assistant = _mm_set1_epi32(c.assistant),
                eot = _mm_set1_epi32(c.eot), vocab = _mm_set1_epi32(c.vocab),
                all = _mm_set1_epi32(-1);
  const auto of_interest = [&](const int* four) {
    const __m128i id = _mm_loadu_si128(reinterpret_cast<const __m128i*>(four));
    const __m128i control =
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi32(id, user), _mm_cmpeq_epi32(id, assistant)),
                     _mm_cmpeq_epi32(id, eot));
    const __m128i past = _mm_andnot_si128(_mm_cmpgt_epi32(vocab, id), all);
    return _mm_or_si128(_mm_or_si128(control, past), id);  // of which only sign bits count
  };
  std::size_t i = 0, count = 0;
  for (; i + 16 <= n; i += 16) {
    const __m128i low = _mm_packs_epi32(of_interest(ids + i), of_interest(ids + i + 4));
    const __m128i high = _mm_packs_epi32(of_interest(ids + i + 8), of_interest(ids + i + 12));
    const int mask = _mm_movemask_epi8(_mm_packs_epi16(low, high));
    count = take_hits(static_cast<unsigned>(mask), i, count, hits);
  }
  return scan_from(i, count, ids, n, c, hits);
}

#ifdef __GNUC__
#define STATETOK_AVX2 1
#define STATETOK_FOR_AVX2 __attribute__((target("avx2")))

STATETOK_FOR_AVX2 inline std::size_t scan_avx2(const int* ids, std::size_t n, const Contract& c,
                                               std::uint16_t* hits) {
  const __m256i user = _mm256_set1_epi32(c.user), assistant = _mm256_set1_epi32(c.assistant),
                eot = _mm256_set1_epi32(c.eot), vocab = _mm256_set1_epi32(c.vocab),
                all = _mm256_set1_epi32(-1);
  const auto of_interest = [&](const int* eight) STATETOK_FOR_AVX2 {
    const __m256i id = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(eight));
    const __m256i control = _mm256_or_si256(
        _mm256_or_si256(_mm256_cmpeq_epi32(id, user), _mm256_cmpeq_epi32(id, assistant)),
        _mm256_cmpeq_epi32(id, eot));
    const __m256i past = _mm256_andnot_si256(_mm256_cmpgt_epi32(vocab, id), all);
    const __m256i signs = _mm256_or_si256(_mm256_or_si256(control, past), id);
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(signs)));
  };
  std::size_t i = 0, count = 0;
  for (; i + 32 <= n; i += 32) {
    const unsigned mask = of_interest(ids + i) | of_interest(ids + i + 8) << 8 |
                          of_interest(ids + i + 16) << 16 | of_interest(ids + i + 24) << 24;
    count = take_hits(mask, i, count, hits);
  }
  for (; i + 8 <= n; i += 8) count = take_hits(of_interest(ids + i), i, count, hits);
  return scan_from(i, count, ids, n, c, hits);
}
#endif

#endif  // STATETOK_X86

#ifdef STATETOK_NEON

inline std::size_t scan_neon(const int* ids, std::size_t n, const Contract& c,
                             std::uint16_t* hits) {
  const int32x4_t user = vdupq_n_s32(c.user), assistant = vdupq_n_s32(c.assistant),
                  eot = vdupq_n_s32(c.eot), vocab = vdupq_n_s32(c.vocab), zero = vdupq_n_s32(0);
  const auto of_interest = [&](const int* four) {
    const int32x4_t id = vld1q_s32(four);
    const uint32x4_t control =
        vorrq_u32(vorrq_u32(vceqq_s32(id, user), vceqq_s32(id, assistant)), vceqq_s32(id, eot));
    return vorrq_u32(control, vorrq_u32(vcgeq_s32(id, vocab), vcltq_s32(id, zero)));
  };
  const auto narrow = [&](const int* eight) {
    return vmovn_u16(vcombine_u16(vmovn_u32(of_interest(eight)), vmovn_u32(of_interest(eight + 4))));
  };
  const uint8x8_t bits = vcreate_u8(0x8040201008040201);
  std::size_t i = 0, count = 0;
  for (; i + 16 <= n; i += 16) {
    const unsigned low = vaddv_u8(vand_u8(narrow(ids + i), bits));
    const unsigned high = vaddv_u8(vand_u8(narrow(ids + i + 8), bits));
    count = take_hits(low | high << 8, i, count, hits);
  }
  return scan_from(i, count, ids, n, c, hits);
}

#endif  // STATETOK_NEON

inline Scan best_scan() {
#if defined(STATETOK_AVX2)
  if (__builtin_cpu_supports("avx2")) return scan_avx2;
#endif
#if defined(STATETOK_X86)
  return scan_sse2;
#elif defined(STATETOK_NEON)
  return scan_neon;
#else
  return scan_plain;
#endif
}

// -- sources: what ids are read from ----------------------------------------------------------
//
// A source has
//
//   std::size_t size() const;
//   const int* read(std::size_t first, std::size_t count, int* buffer);
//
// `read` returns `count` ids from `first` on, where they stand or in `buffer`. Pieces are read
// from the front to the back; once, at any piece, reading may start again from the front.

// Whether one integer type can hold a value of another.
template <typename To, typename From>
bool fits(From value) {
  if constexpr (std::is_unsigned_v<From>)
    return value <= std::uint64_t{std::numeric_limits<To>::max()};
  else if constexpr (std::is_unsigned_v<To>)
    return value >= 0 && static_cast<std::uint64_t>(value) <= std::numeric_limits<To>::max();
  else
    return value >= std::numeric_limits<To>::min() && value <= std::numeric_limits<To>::max();
}

// Thrown at an id that needs more than 32 bits.
template <typename Id>
struct TooWide {
  std::size_t position;
  Id id;
};

// Thrown at an id that the header adds and an array's type cannot hold.
struct DoesNotFit {
  int id;
};

// Refuses ids of the header's that an array cannot hold. Those that were given fit, so these may
// be all of an answer.
template <typename Id>
void check_fit(const std::vector<int>& ids) {
  if constexpr (!std::is_same_v<Id, int>)
    for (const int id : ids)
      if (!fits<Id>(id)) throw DoesNotFit{id};
}

// An array of any integer type as a source.
template <typename Id>
class ArrayIds {
 public:
  ArrayIds(const Id* ids, std::size_t size) : ids_(ids), size_(size) {}
  std::size_t size() const { return size_; }

  const int* read(std::size_t first, std::size_t count, int* buffer) const {
    const Id* const ids = ids_ + first;
    if constexpr (std::is_same_v<Id, int>) {
      return ids;
    } else {
      // `wide` gets a bit from each id that does not fit, without a branch, so that the compiler
      // takes many ids at a time.
      std::uint64_t wide = 0;
      for (std::size_t i = 0; i < count; ++i) {
        buffer[i] = static_cast<int>(ids[i]);
        if constexpr (sizeof(Id) == 8 && std::is_signed_v<Id>)
          wide |= (static_cast<std::uint64_t>(ids[i]) + (std::uint64_t{1} << 31)) >> 32;
        else if constexpr (sizeof(Id) >= 4)
          wide |= ids[i] >> 31;
      }
      if (wide != 0)
        for (std::size_t i = 0; i < count; ++i)
          if (!fits<int>(ids[i])) throw TooWide<Id>{first + i, ids[i]};
      return buffer;
    }
  }

 private:
  const Id* ids_;
  std::size_t size_;
};

// -- question: what is put to the header ------------------------------------------------------

class Question {
 public:
  // The ids of `source` with each run of text as one id. Where text is rare, skipping does not pay
  // and all ids are taken; that is seen from the first few of each piece.
  template <typename Source>
  void skip_text(Source&& source, const Contract& c, Scan scan) {
    clear();
    int text = 0;  // any id that is text stands for all of them
    while (text == c.user || text == c.assistant || text == c.eot) ++text;
    // What fits one piece is looked at in one go.
    const std::size_t sample = source.size() <= kPiece ? kPiece : kPiece / 8;
    int buffer[kPiece];
    std::uint16_t hits[kPiece];
    bool is_dense = false;
    std::size_t count = 0;
    for (std::size_t first = 0; first < source.size(); first += count) {
      const bool is_sample = first % kPiece == 0;
      count = std::min(is_sample ? sample : kPiece - sample, source.size() - first);
      const int* const ids = source.read(first, count, buffer);
      const std::size_t n = is_sample || !is_dense ? scan(ids, count, c, hits) : 0;
      if (is_sample) is_dense = n * 6 > count;
      if (is_dense) {
        skip_to(first, text);
        ids_.insert(ids_.end(), ids, ids + count);
        next_ = first + count;
      } else {
        is_whole_ = false;
        add(ids, first, hits, n, text);
      }
    }
    skip_to(source.size(), text);
  }

  template <typename Source>
  void skip_nothing(Source&& source) {
    clear();
    ids_.resize(source.size());
    for (std::size_t first = 0; first < ids_.size(); first += kPiece) {
      const std::size_t count = std::min(kPiece, ids_.size() - first);
      int* const target = ids_.data() + first;
      const int* const ids = source.read(first, count, target);
      if (ids != target) std::copy(ids, ids + count, target);
    }
  }

  const std::vector<int>& ids() const { return ids_; }
  // These are the ids of the source, so that the answer is the result itself.
  bool is_whole() const { return is_whole_; }

  // Where in the source the id at `i` stands; past the last one, where the source ends. `cursor`
  // is 0 for the first call; from call to call, `i` does not decrease.
  std::size_t place(std::size_t i, std::size_t& cursor) const {
    while (cursor < skips_.size() && skips_[cursor].at <= i) ++cursor;
    return cursor == 0 ? i : i + skips_[cursor - 1].skipped;
  }

  // Kept for the next question, but for what only a very long sequence needs.
  void shrink() {
    constexpr std::size_t kKept = 1 << 16;
    clear();
    if (ids_.capacity() > kKept) std::vector<int>().swap(ids_);
    if (skips_.capacity() > kKept) std::vector<Skip>().swap(skips_);
  }

 private:
  // From the id at `at` on, so many ids of the source are left out.
  struct Skip {
    std::size_t at, skipped;
  };

  void clear() {
    ids_.clear();
    skips_.clear();
    next_ = skipped_ = 0;
    is_whole_ = true;
  }

  // Takes one id for the text from `next_` to `place`.
  void skip_to(std::size_t place, int text) {
    if (next_ == place) return;
    ids_.push_back(text);
    skipped_ += place - next_ - 1;
    skips_.push_back({ids_.size(), skipped_});
    next_ = place;
  }

  // Takes the n ids that were hit, and one for each run of text in front of them.
  void add(const int* ids, std::size_t first, const std::uint16_t* hits, std::size_t n, int text) {
    const std::size_t used = ids_.size(), used_skips = skips_.size();
    ids_.resize(used + 2 * n);
    skips_.resize(used_skips + n);
    int* id = ids_.data() + used;
    Skip* skip = skips_.data() + used_skips;
    for (std::size_t h = 0; h < n; ++h) {
      const std::size_t place = first + hits[h];
      if (next_ < place) {
        *id++ = text;
        skipped_ += place - next_ - 1;
        *skip++ = {static_cast<std::size_t>(id - ids_.data()), skipped_};
      }
      *id++ = ids[hits[h]];
      next_ = place + 1;
    }
    ids_.resize(static_cast<std::size_t>(id - ids_.data()));
    skips_.resize(static_cast<std::size_t>(skip - skips_.data()));
  }

  std::vector<int> ids_;
  std::vector<Skip> skips_;
  std::size_t next_ = 0;     // the first id of the source that is not dealt with yet
  std::size_t skipped_ = 0;  // ids left out up to there
  bool is_whole_ = true;
};

struct Nothing {
  explicit Nothing(std::size_t) {}
};

// Puts questions to the header, in memory that is kept for the next one who asks. It is kept once,
// not for each thread: glibc ends the process if there is no memory for what is thread_local.
class Asking {
 public:
  Asking() : question_(kept().exchange(nullptr)) {
    if (question_ == nullptr) question_ = new Question;
  }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  ~Asking() {
    question_->shrink();
    delete kept().exchange(question_);
  }

  // The header's answer to the question that `source` makes. While the header works, an `Around`
  // is alive that was made of the number of ids it works on.
  template <typename Around = Nothing, typename Source>
  std::vector<int> ask(Source&& source, const Contract& c, Scan scan) {
    question_->skip_text(source, c, scan);
    if (!question_->is_whole()) {
      try {
        const Around around(question_->ids().size());
        return ask_header(question_->ids(), c);
      } catch (const std::invalid_argument&) {
        question_->skip_nothing(source);  // the refusal must name the position in the source
      }
    }
    const Around around(question_->ids().size());
    return ask_header(question_->ids(), c);
  }
  const Question& question() const { return *question_; }

 private:
  static std::atomic<Question*>& kept() {
    static std::atomic<Question*> question{nullptr};
    return question;
  }
  Question* question_;
};

// -- plan: what the header adds, and where ----------------------------------------------------

// `count` ids, from `first` on in Plan::ids, go before the id at `before`.
struct Edit {
  std::size_t before, first, count;
};
using Edits = std::vector<Edit>;

// What the header adds to a sequence: edits in the order of the sequence.
struct Plan {
  Edits edits;
  std::vector<int> ids;   // edits that add the same ids share them, so these are few
  std::size_t added = 0;  // ids that all edits add

  // Takes up what an answer adds. Insertion only adds, so one walk along both finds it. `base`
  // is where the source begins in the sequence that the plan is for.
  void take(const Question& question, const std::vector<int>& answer, std::size_t base = 0) {
    const std::vector<int>& asked = question.ids();
    if (edits.empty()) edits.reserve(asked.size() / 4);  // about an exchange each
    std::size_t next = 0, cursor = 0;
    for (auto id = answer.begin(); id != answer.end();) {
      if (next < asked.size() && *id == asked[next]) {
        ++id, ++next;
        continue;
      }
      const auto begin = id;
      while (id != answer.end() && (next == asked.size() || *id != asked[next])) ++id;
      const auto count = id - begin;
      const bool shared = count <= static_cast<std::ptrdiff_t>(ids.size()) &&
                          std::equal(begin, id, ids.end() - count);
      if (!shared) ids.insert(ids.end(), begin, id);
      const auto n = static_cast<std::size_t>(count);
      edits.push_back({base + question.place(next, cursor), ids.size() - n, n});
      added += n;
    }
  }
};

// -- apply: copy a sequence with its edits ----------------------------------------------------

// Writes items [begin, end) of `from` with the edits among them, and returns the end of what it
// wrote. `added` holds an item for each of the plan's ids.
template <typename Item, typename Added>
Item* apply(const Edits& edits, const Added* added, const Item* from, std::size_t begin,
            std::size_t end, Item* to) {
  for (const Edit& edit : edits) {
    to = std::copy(from + begin, from + edit.before, to);
    // A loop, since these are few: calling memmove would take longer.
    for (std::size_t i = 0; i < edit.count; ++i) *to++ = static_cast<Item>(added[edit.first + i]);
    begin = edit.before;
  }
  return std::copy(from + begin, from + end, to);
}

// The same of where items come from: writes their places in `from`, and -1 for what was added.
inline std::int64_t* apply_to_places(const Edits& edits, std::size_t begin, std::size_t end,
                                     std::int64_t* to) {
  const auto places = [&](std::size_t stop) {
    for (; begin < stop; ++begin) *to++ = static_cast<std::int64_t>(begin);
  };
  for (const Edit& edit : edits) {
    places(edit.before);
    to = std::fill_n(to, edit.count, std::int64_t{-1});
  }
  places(end);
  return to;
}

}  // namespace statetok
