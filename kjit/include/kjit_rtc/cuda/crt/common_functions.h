// A stand-in for CUDA's header of this name (see host_defines.h), whose contents kjit_rtc/host.h does not need.

#pragma once
