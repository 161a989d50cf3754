#include "gather_cases.h"
