#include "rowwise_cases.h"

namespace {

using namespace kjit::details;

// How rows are laid over a GPU.
constexpr bool is_spread(RowSpread spread, int threads, int block, std::int64_t grid, int cluster) {
  return spread.threads == threads && spread.block == block && spread.grid == grid && spread.cluster == cluster;
}
static_assert(is_spread(spread_rows(100'000, 8, 2), 4, 64, 6250, 1), "a few lanes where rows are short");
static_assert(is_spread(spread_rows(100'000, 128, 4), 32, 64, 50'000, 1), "a warp, two of them in a block");
static_assert(is_spread(spread_rows(100'000, 448, 2), 224, 224, 100'000, 1), "a block of whole warps");
static_assert(is_spread(spread_rows(100'000, 4096, 4), 1024, 1024, 100'000, 1), "the largest block");
static_assert(is_spread(spread_rows(4, 100, 4), 128, 128, 4, 1), "a vector a thread where rows are few");
static_assert(is_spread(spread_rows(100, 16'384, 8, 1024, 8), 2048, 1024, 100, 2),
              "a cluster where a block has no room");
static_assert(kMaxCluster == 1 || is_spread(spread_rows(1, 8192, 8, 1024, 8), 4096, 512, 1, 8), "or most is idle");
static_assert(is_spread(spread_rows(100'000, 64, 8, 512, 8, 16), 16, 64, 25'000, 1),
              "as many threads as a cache line has vectors");
static_assert(is_spread(spread_rows(100, 100'000, 8, 1024, 8), 1024, 1024, 100, 1),
              "nor a cluster: more for each thread");

static_assert(threads_to_hold(17, 4) == 8 && threads_to_hold(128, 4) == 32 && threads_to_hold(129, 4) == 64);
static_assert(largest_block(8192, 8, kMaxCluster) == 1024 && largest_block(5120, 8, kMaxCluster) == 1024 &&
              (kMaxCluster == 1 || largest_block(5000, 8, kMaxCluster) == 512));

// What a thread holds: of one input and a column, of two inputs, of one with two columns, and of many.
template <typename... Operands>
using TuningOf = RowTuningOf<RmsNorm<float>, Operands...>;
using OfOne = TuningOf<In<float>, PerColumn<float>, Out<float>>;
using OfTwo = TuningOf<In<float>, In<float>, PerColumn<float>, Out<float>>;
using OfMany = TuningOf<In<float>, In<float>, In<float>, PerColumn<float>, PerColumn<float>, Out<float>>;
static_assert(OfOne::kParts == 4 && OfOne::kShortParts == 2 && OfOne::kLongParts == 8 && OfOne::late_columns(8) == 4);
static_assert(OfTwo::kParts == 2 && OfTwo::kShortParts == 2 && OfTwo::kLongParts == 4 && OfTwo::late_columns(4) == 2);
static_assert(OfMany::kParts == 1 && OfMany::kShortParts == 1 && OfMany::kLongParts == 2);
using OfWide = RowTuningOf<RmsNorm<double>, In<double>, PerColumn<double>, Out<double>>;
static_assert(OfWide::kLongParts == 4 && OfWide::max_block(true) == 1024 && !OfWide::kIsLight, "or registers spill");
static_assert(OfOne::kUnalignedParts == 4 && OfTwo::kUnalignedParts == 2 && OfWide::kUnalignedParts == 4);
static_assert(TuningOf<In<bf16_t>, PerColumn<bf16_t>, Out<bf16_t>>::kUnalignedParts == 8, "64 bytes in each thread");
static_assert(elements_in<In<bf16_t>, Out<fp8_e4m3_t>, OutPerRow<std::int64_t>>(16) == 8, "rows alone decide");

}  // namespace
