#include "../gpu/rowwise_cases.h"

#include <type_traits>

// glibc declares it from 2.42 on.
extern "C" double rsqrt(double) noexcept;

namespace {
using namespace kjit;
static_assert(std::is_same_v<decltype(rsqrt(1.0)), double> && std::is_same_v<decltype(rsqrt(1.0f)), float>);
}  // namespace
