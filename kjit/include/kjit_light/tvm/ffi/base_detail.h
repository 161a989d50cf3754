// What includes this needs more of tvm-ffi than kjit_light/tvm.h has.

#error "kjit_light: this asks for more of tvm-ffi"
