// add_constant on a GPU: add_constant.h has the op.

#include "add_constant.h"
