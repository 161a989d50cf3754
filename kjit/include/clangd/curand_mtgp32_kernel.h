// Replaces cuRAND's header in an editor. Clang's CUDA wrapper always includes it; if the CUDA installation has no
// cuRAND (the wheels from PyPI, a minimal install) it stops there, and misreads every standard header after it. This
// folder is searched last, so that a real header takes precedence.

#pragma once
