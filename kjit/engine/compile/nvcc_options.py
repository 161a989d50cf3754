"""The options of nvcc, to reject unknown ones in builds without nvcc: for the simulator, or with NVRTC alone.

Names include their dashes: most options have one name with one dash and another with two.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kjit.engine.key.flags import expand

# `nvcc --help` of CUDA 13.0 and 13.3, and undocumented options.
_NAMES = frozenset(
    re.findall(
        r"\S+",
        """
    --allow-unsupported-compiler --apply-controls --archive-options --archiver-binary --augment-host-linker-script
    --brief-diagnostics --cicc-options --clean-targets --compile --compile-as-tools-patch --compiler-bindir
    --compiler-options --compress-mode --cubin --cuda --cudadevrt --cudafe-options --cudart --debug --default-stream
    --define-macro --dependency-drive-prefix --dependency-output --dependency-target-name --device-c --device-debug
    --device-entity-has-hidden-visibility --device-link --device-stack-protector --device-w --diag-error
    --diag-suppress --diag-warn --disable-warnings --display-error-number --dlink-time-opt --dont-use-profile --dopt
    --drive-prefix --dryrun --enable-tile --entries --expt-extended-lambda --expt-relaxed-constexpr
    --extended-lambda --extensible-whole-program --extra-device-vectorization --fatbin --fatbin-options
    --fdevice-sanitize --fdevice-syntax-only --fdevice-time-trace --fmad --force-cl-env-setup --forward-unknown-opts
    --forward-unknown-to-host-compiler --forward-unknown-to-host-linker --frandom-seed --ftemplate-backtrace-limit
    --ftemplate-depth --ftz --gen-opt-lto --generate-code --generate-dependencies
    --generate-dependencies-with-compile --generate-dependency-targets --generate-line-info
    --generate-nonsystem-dependencies --generate-nonsystem-dependencies-with-compile --gpu-architecture --gpu-code
    --help --host-linker-script --include-path --input-drive-prefix --jobserver --jump-table-density --keep
    --keep-device-functions --keep-dir --lib --libdevice-directory --library --library-path --link --linker-options
    --list-gpu-arch --list-gpu-code --lto --ltoir --m64 --machine --maxrregcount --no-align-double --no-compress
    --no-device-link --no-display-error-number --no-exceptions --no-host-device-initializer-list
    --no-host-device-move-forward --nvlink-options --nvprune-options --objdir-as-tempdir --Ofast-compile
    --optimization-info --optimize --options-file --optix-ir --output-directory --output-file --pre-include
    --prec-div --prec-sqrt --preprocess --profile --prune --ptx --ptxas-options --qpp-config
    --relocatable-device-code --relocatable-link --relocatable-ptx --resource-usage --restrict --run --run-args
    --safety-compatibility --sanitize --save-temps --shared --simt-only --skip-ptx-semantics-check --source-in-ptx
    --split-compile --split-compile-extended --static-global-template-stub --std --system-include --target-directory
    --threads --tile-only --tilebc --tilecubin --tilefatbin --tileiras-options --time --undefine-macro
    --use-local-env --use_fast_math --verbose --verbose2 --version --Wdefault-stream-launch --Werror
    --Wext-lambda-captures-this --Wmissing-launch-bounds --Wno-deprecated-declarations --Wno-deprecated-gpu-targets
    --Wreorder --x -allow-unsupported-compiler -apply-controls -arbin -arch -arch-ls -astoolspatch -aug-hls
    -brief-diag -c -ccbin -clean -code -code-ls -compress-mode -cubin -cuda -cudadevrt -cudart -D -dc -ddp
    -default-stream -device-entity-has-hidden-visibility -device-stack-protector -diag-error -diag-suppress
    -diag-warn -dlink -dlto -dopt -dp -dryrun -dw -E -e -enable-tile -err-no -ewp -expt-extended-lambda
    -expt-relaxed-constexpr -extended-lambda -extra-device-vectorization -fatbin -fdevice-sanitize
    -fdevice-syntax-only -fdevice-time-trace -fmad -force-cl-env-setup -forward-unknown-opts
    -forward-unknown-to-host-compiler -forward-unknown-to-host-linker -frandom-seed -ftemplate-backtrace-limit
    -ftemplate-depth -ftz -g -G -gen-opt-lto -gencode -h -hls -I -idp -include -isystem -jobserver -jtd -keep
    -keep-device-functions -keep-dir -l -L -ldir -lib -lineinfo -link -lto -ltoir -M -m -m64 -maxrregcount -MD -MF
    -MM -MMD -MP -MT -no-compress -no-err-no -nodlink -noeh -nohdinitlist -nohdmoveforward -noprof -o -O -objtemp
    -odir -Ofc -opt-info -optf -optix-ir -pg -prec-div -prec-sqrt -prune -ptx -qpp-config -r -rdc -reloc-ptx
    -res-usage -restrict -run -run-args -safety-compat -sanitize -save-temps -shared -simt-only
    -skip-ptx-semantics-check -split-compile -split-compile-extended -src-in-ptx -static-global-template-stub -std
    -t -target-dir -tile-only -tilebc -tilecubin -tilefatbin -time -U -use-local-env -use_fast_math -v -V -v2 -w
    -Wdefault-stream-launch -Werror -Wext-lambda-captures-this -Wmissing-launch-bounds -Wno-deprecated-declarations
    -Wno-deprecated-gpu-targets -Wreorder -x -Xarchive -Xcicc -Xcompiler -Xcudafe -Xfatbin -Xlinker -Xnvlink
    -Xnvprune -Xptxas -Xtileiras
        """,
    )
)
# Options with their value in the same word.
_JOINED = re.compile(r"-[Omt]\d+")
_FORWARDING = {name for name in _NAMES if "forward-unknown" in name}
# Options of the C++ compiler, which nvcc passes on only with -Xcompiler.
_OF_HOST = re.compile(r"-(?:[fmW][\w-]*(?:=.*)?|pthread|pedantic|ansi|g\w+)")


class Unknown(NamedTuple):
    """A word that is not an option of nvcc, and the option that was probably meant: nvcc's, or `-Xcompiler=...`."""

    word: str
    meant: str | None


def unknown_to_nvcc(words: Iterable[str]) -> Iterator[Unknown]:
    """The options among `words`, and in files that these name, that nvcc does not have."""
    every = [flag for flag, dialect in expand(words, "nvcc") if dialect == "nvcc"]
    if any(flag.value.partition("=")[0] in _FORWARDING for flag in every if not flag.name):
        return
    for flag in every:
        name = flag.value.partition("=")[0]
        if flag.name or not name.startswith("-") or name in _NAMES or _JOINED.fullmatch(name):
            continue
        is_for_host = name in ("-march", "-mtune")  # similar to -arch
        if not is_for_host and (close := difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.8)):
            yield Unknown(flag.value, close[0])
        else:
            yield Unknown(flag.value, f"-Xcompiler={flag.value}" if _OF_HOST.fullmatch(flag.value) else None)
