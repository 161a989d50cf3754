#pragma once
#include <cwchar>
