// A stand-in for CUDA's header of this name (host_defines.h says why): kjit_rtc/host.h does without what is in
// host_config.h.

#pragma once
