// The functions of kjit/once.h that have no template parameters (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <kjit/once.h>

namespace kjit::host::details {

KJIT_IMPL void FactoryMutex::lock() {
  if (::pthread_mutex_lock(&mutex_) != 0) Panic("a factory has requested the value that it is making");
}

KJIT_IMPL void FactoryMutex::unlock() noexcept {
  static_cast<void>(::pthread_mutex_unlock(&mutex_));
}

}  // namespace kjit::host::details
