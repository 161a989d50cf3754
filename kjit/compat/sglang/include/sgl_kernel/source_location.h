#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/source_location.h>
