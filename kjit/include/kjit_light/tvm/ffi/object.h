// Included by headers of tvm-ffi that need more than kjit_light/tvm.h has.

#error "kjit_light: this asks for more of tvm-ffi"
