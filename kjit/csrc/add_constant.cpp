// add_constant on the CPU: add_constant.h has the op.

#include "add_constant.h"
