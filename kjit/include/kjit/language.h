// A check of the C++ standard, included by all headers that include no other header of kjit. A flag of an op may select
// an older one (`-std=c++17`), which would produce a hundred unrelated errors.

#pragma once

#if __cplusplus < 202002L
#if KJIT_SIM
#error "kjit's simulator needs C++20"
#else
#error "kjit's headers need C++20"
#endif
#endif
