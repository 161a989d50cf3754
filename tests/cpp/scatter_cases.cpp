#include "../gpu/scatter_cases.h"
