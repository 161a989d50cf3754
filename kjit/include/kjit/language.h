// Which C++ this is: included by those headers of kjit that include no other one of them. A flag of an op's own may ask
// for an older one (`-std=c++17`), and what follows would then be a hundred errors about something else.

#pragma once

#if __cplusplus < 202002L
#if KJIT_SIM
#error "kjit's simulator needs C++20"
#else
#error "kjit's headers need C++20"
#endif
#endif
