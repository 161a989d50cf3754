#include "../gpu/elementwise_cases.h"
