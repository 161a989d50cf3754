#include "scatter_cases.h"
