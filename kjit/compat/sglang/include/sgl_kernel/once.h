#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/once.h>
#include <sgl_kernel/utils.h>
