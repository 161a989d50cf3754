// Which of kjit's names SGLang's mean. Every header in this folder includes it.

#pragma once

#include <kjit/language.h>

/// SGLang's namespace is kjit's, so that what sources add to it (kernels, specializations, names of their own) and what
/// kjit's headers define are in one place, as they were.
#define sglang kjit

#ifndef SGL_CUDA_ARCH
#define SGL_CUDA_ARCH KJIT_CUDA_ARCH
#endif
#define SGL_ARCH_HOPPER_OR_GREATER KJIT_ARCH_HOPPER_OR_GREATER
#define SGL_ARCH_BLACKWELL_OR_GREATER KJIT_ARCH_BLACKWELL_OR_GREATER
#define SGL_DEVICE KJIT_DEVICE
#define SGL_DEVICE_HOST KJIT_DEVICE_HOST
#define SGL_PANIC KJIT_PANIC
#define SGLANG_LDG KJIT_LDG
#define SGLANG_REGISTER_FFI_REFERENCE_CLASS KJIT_REGISTER_FFI_REFERENCE_CLASS
