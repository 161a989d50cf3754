#include "rowwise_cases.h"
