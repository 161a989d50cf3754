// Stands in for cuRAND's header in an editor. Clang's own CUDA wrapper includes it always; where a CUDA has no cuRAND
// (the wheels from PyPI, a minimal install) it stops there, and every standard header after it is misread. This folder
// is searched last, so that a real one is taken where there is one.

#pragma once
