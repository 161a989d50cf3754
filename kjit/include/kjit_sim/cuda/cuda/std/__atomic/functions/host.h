// libcu++'s host atomics; polling loops yield to other threads.

#pragma once

#include <kjit_sim/threads.h>

#define __atomic_load(...) (::kjit_sim::looked(), __atomic_load(__VA_ARGS__))
#define __atomic_compare_exchange(...) (::kjit_sim::looked(), __atomic_compare_exchange(__VA_ARGS__))
#include_next <cuda/std/__atomic/functions/host.h>
#undef __atomic_load
#undef __atomic_compare_exchange
