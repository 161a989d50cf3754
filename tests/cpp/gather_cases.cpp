#include "../gpu/gather_cases.h"
