#include "elementwise_cases.h"
