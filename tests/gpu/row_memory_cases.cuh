// Ops whose rows begin anywhere: `test_row_memory.py` calls them.

#include "gather_cases.h"
#include "rowwise_cases.h"
