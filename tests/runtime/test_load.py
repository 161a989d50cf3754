"""kjit.runtime.load: from a request to a loaded module, in this process and in the next one."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi
from forked import Forks

import kjit
from kjit.engine import builder
from kjit.engine.cache.store import Store
from kjit.errors import NotPrebuiltError, UsageError
from kjit.runtime.declared import _Exports
from kjit.runtime.load import load_variant, target_of
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]


def load(spec: Spec) -> object:
    """The number that the op answers, through `load_jit`."""
    return getattr(kjit.load_jit(spec.name, *spec.args, cpp_files=spec.cpp_files), spec.name)()


def header_of(spec: Spec) -> Path:
    return Path(spec.cpp_files[0]).with_suffix(".h")


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


class TestLoadJit:
    @pytest.mark.usefixtures("cache_dir")
    def test_a_module_that_exports_nothing_says_so(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        source = tmp_path / "plain.cpp"
        source.write_text("int answer() { return 42; }\n")
        kjit.load_jit("plain", cpp_files=[source])
        assert "module 'plain' exports no function: name some in cpp_wrappers, or put KJIT_EXPORT(" in caplog.text

    def test_a_child_that_is_forked_while_a_thread_loads_a_module_loads_its_own(
        self, tmp_path: Path, answer_op: WriteOp, cache_dir: Path
    ) -> None:
        del cache_dir
        answer, other = answer_op(tmp_path), answer_op(tmp_path, "other", 7)
        for spec in (answer, other):
            builder.build(Variant(spec, Target.cpu()), Store.open())
        done = run(f"""
            import os, signal, threading
            import kjit, tvm_ffi
            real, loads = tvm_ffi.load_module, threading.Event()
            def load_module(path):
                loads.set()
                threading.Event().wait()
            tvm_ffi.load_module = load_module
            load = lambda name, file: getattr(kjit.load_jit(name, cpp_files=[file]), name)()
            threading.Thread(target=load, args=("answer", {answer.cpp_files[0]!r}), daemon=True).start()
            loads.wait()
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # else a child that hangs would do so for ever
                tvm_ffi.load_module = real
                answers = load("other", {other.cpp_files[0]!r}), load("answer", {answer.cpp_files[0]!r})
                os.write(1, repr(answers).encode())
                os._exit(0)
            os.waitpid(child, 0)
            os._exit(0)
        """)
        assert done.stdout == "(7, 42)", done.stderr

    @pytest.mark.usefixtures("cache_dir")
    def test_a_module_with_its_own_include_folder_and_flags(self, tmp_path: Path, answer_op: WriteOp) -> None:
        spec = answer_op(tmp_path)
        (tmp_path / "include").mkdir()
        header_of(spec).rename(tmp_path / "include" / "answer.h")
        source = Path(spec.cpp_files[0])
        source.write_text(source.read_text().replace("= ANSWER", "= ANSWER + MORE"))
        module = kjit.load_jit(
            "answer", cpp_files=[source], extra_cflags=["-DMORE=1"], extra_include_paths=[tmp_path / "include"]
        )
        assert module.answer() == 43

    def test_a_build_directory_is_used_instead_of_the_cache(
        self, tmp_path: Path, answer_op: WriteOp, cache_dir: Path
    ) -> None:
        spec = answer_op(tmp_path)
        module = kjit.load_jit("answer", cpp_files=spec.cpp_files, build_directory=tmp_path / "build")
        assert module.answer() == 42
        assert len(list(Store.open(tmp_path / "build").entries())) == 1
        assert list(Store.open(cache_dir).entries()) == []

    @pytest.mark.usefixtures("cache_dir")
    def test_a_copy_of_a_model_shares_its_modules_and_pickling_says_what_to_do(
        self, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        loaded = kjit.load_jit("answer", cpp_files=answer_op(tmp_path).cpp_files)
        model = torch.nn.Module()
        for module in (loaded, _Exports(loaded, ["answer"])):
            model.kernels = module
            assert copy.deepcopy(model).kernels is module
            for save in (pickle.dumps, lambda model: torch.save(model, tmp_path / "model")):
                with pytest.raises(UsageError, match=r"cannot be pickled(.|\n)*load it where it is used"):
                    save(model)

    @pytest.mark.usefixtures("cache_dir")
    def test_a_relative_file_is_one_of_kjits_own(self) -> None:
        with pytest.raises(UsageError, match=r"kjit/csrc/no_such.cpp' of module 'answer' cannot be read") as caught:
            kjit.load_jit("answer", cpp_files=["no_such.cpp"])
        assert caught.value.hint == (
            "relative paths are in kjit's own csrc; for your own file, write Path(__file__).parent / 'no_such.cpp'"
        )

    @pytest.mark.parametrize(
        ("args", "message"),
        [((), "the module has no name"), (("answer", 4), r"the argument 4 of module 'answer' is not a string")],
    )
    def test_a_module_is_named_by_strings(self, args: Any, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            kjit.load_jit(*args, cpp_files=["/x.cpp"])

    @pytest.mark.usefixtures("cache_dir")
    def test_two_threads_compile_once(
        self, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = answer_op(tmp_path)
        compiles: list[object] = []
        real = builder.compile_variant
        monkeypatch.setattr(builder, "compile_variant", lambda *a, **k: [compiles.append(a), real(*a, **k)][1])
        modules: list[object] = []

        def work() -> None:
            modules.append(kjit.load_jit("answer", cpp_files=spec.cpp_files))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(compiles) == 1
        assert len(set(map(id, modules))) == 1

    def test_a_cache_that_is_removed_while_in_use_is_filled_again(
        self, tmp_path: Path, answer_op: WriteOp, cache_dir: Path
    ) -> None:
        spec = answer_op(tmp_path)
        assert load(spec) == 42
        shutil.rmtree(cache_dir)
        assert load(spec) == 42
        assert len(list(Store.open(cache_dir).entries())) == 1

    def test_a_cache_that_is_removed_between_look_up_and_load_is_filled_again(
        self, tmp_path: Path, answer_op: WriteOp, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = tvm_ffi.load_module

        def load_module(path: str) -> object:
            monkeypatch.undo()
            shutil.rmtree(cache_dir)
            os.environ["KJIT_CACHE_DIR"] = str(cache_dir)
            return real(path)

        spec = answer_op(tmp_path)
        monkeypatch.setattr(tvm_ffi, "load_module", load_module)
        assert load(spec) == 42


class TestAnotherProcess:
    """A process that finds everything built."""

    LOAD = """
        import kjit
        print(kjit.load_jit("answer", cpp_files=[{source!r}]).answer())
    """

    @pytest.fixture
    def built(self, tmp_path: Path, answer_op: WriteOp, cache_dir: Path) -> Spec:
        del cache_dir
        spec = answer_op(tmp_path)
        builder.build(Variant(spec, Target.cpu()), Store.open())
        return spec

    def test_it_starts_no_process_and_needs_no_ninja(self, built: Spec, forked: Forks) -> None:
        done = forked.run(f"""
            import os, subprocess, sys
            import tvm_ffi  # it imports torch, and what that starts is not ours
            def refuse(*args, **kwargs):
                raise AssertionError(f"a process is started: {{args}}")
            subprocess.Popen = os.system = os.posix_spawn = os.fork = os.execve = refuse
            import kjit
            print(kjit.load_jit("answer", cpp_files=[{built.cpp_files[0]!r}]).answer())
            assert "ninja" not in sys.modules
            assert "kjit.engine.compile.compile" not in sys.modules
        """)
        assert (done.stdout, done.stderr) == ("42\n", "")

    def test_it_finds_the_module_without_importing_torch_by_itself(self, built: Spec) -> None:
        done = run(f"""
            import sys
            from kjit.engine.miss import ensure_built
            from kjit.spec import Spec, Target, Variant
            print(ensure_built(Variant(Spec("answer", cpp_files=[{built.cpp_files[0]!r}]), Target.cpu())).label)
            assert "torch" not in sys.modules and "tvm_ffi" not in sys.modules
        """)
        assert (done.stdout, done.stderr) == ("answer\n", "")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_a_read_only_cache_serves_another_user(self, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch) -> None:
        # pytest's own folders are closed to others, and those of kjit and of the environment may be.
        with tempfile.TemporaryDirectory() as shared:
            monkeypatch.setenv("KJIT_CACHE_DIR", f"{shared}/cache")
            assert load(answer_op(Path(shared, "project"))) == 42
            for package in (Path(kjit.__file__).parent, *Path(tvm_ffi.__file__).parents[1].glob("*tvm_ffi*")):
                shutil.copytree(package, f"{shared}/packages/{package.name}")
            subprocess.run(["chmod", "-R", "go+rX", shared], check=True)
            script = f"""
                import os, sys
                sys.path.insert(0, "{shared}/packages")
                import tvm_ffi, kjit.engine.builder, kjit.runtime.load  # with what they need of Python and torch
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                assert not os.access("{shared}/cache", os.W_OK)
                print(kjit.load_jit("answer", cpp_files=["{shared}/project/csrc/answer.cpp"]).answer())
            """
            done = run(script, KJIT_CACHE_DIR=f"{shared}/cache")
        assert (done.stdout, done.stderr) == ("42\n", "")


class TestNoCompile:
    @pytest.mark.usefixtures("cache_dir")
    def test_a_module_that_is_missing_is_an_error_that_names_it(
        self, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = answer_op(tmp_path)
        monkeypatch.setenv("KJIT_NO_COMPILE", "1")
        with pytest.raises(NotPrebuiltError) as caught:
            load(spec)
        assert caught.value.message == (
            "answer cpu is not built, because it was never built here, and KJIT_NO_COMPILE is set."
        )


class TestLog:
    @pytest.mark.usefixtures("cache_dir")
    def test_a_compile_at_run_time_says_what_and_why(
        self, tmp_path: Path, answer_op: WriteOp, caplog: pytest.LogCaptureFixture
    ) -> None:
        spec = answer_op(tmp_path)
        load(spec)
        header_of(spec).write_text("#define ANSWER 43\n")
        load(spec)
        lines = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert lines[0] == "kjit compiles answer cpu: it was never built here"
        assert "kjit compiles answer cpu: csrc/answer.h changed" in lines

    @pytest.mark.usefixtures("cache_dir")
    def test_what_the_compiler_warns_of_is_shown_once_however_many_variants_warn_of_it(
        self, tmp_path: Path, answer_op: WriteOp, caplog: pytest.LogCaptureFixture
    ) -> None:
        spec = answer_op(tmp_path, "answer", 42)
        header_of(spec).write_text(
            '#define ANSWER 1\n#pragma GCC diagnostic warning "-Wunused-variable"\n'
            "inline void warn() { int never_used = 1; }\n"
        )
        for argument in ("1", "2"):
            load(Spec("answer", argument, cpp_files=spec.cpp_files))
        [shown] = [record for record in caplog.records if "warning: " in record.message]
        assert shown.levelno == logging.WARNING
        assert shown.message.startswith("what the compiler warns of in answer<1> cpu:\n")
        assert "answer.h:3:26: warning: " in shown.message
        assert "  3 | inline void warn() { int never_used = 1; }" in shown.message


@pytest.mark.usefixtures("cache_dir")
class TestJit:
    def test_the_function_names_the_module_and_receives_it_first(
        self, tmp_path: Path, answer_op: WriteOp, cache_dir: Path
    ) -> None:
        spec = answer_op(tmp_path)

        @kjit.jit(cpp_files=spec.cpp_files)
        def _answer(module: object, x: torch.Tensor, y: int = 0) -> torch.Tensor:
            """Add."""
            return x + y + module.answer()  # type: ignore[attr-defined, no-any-return]

        assert _answer(torch.zeros(2), y=1).tolist() == [43, 43]
        assert (_answer.__name__, _answer.__doc__) == ("_answer", "Add.")
        assert [entry.op for entry in Store.open(cache_dir).entries()] == ["answer"]

    def test_tensors_on_several_devices_are_an_error(self, tmp_path: Path, answer_op: WriteOp) -> None:
        @kjit.jit("answer", cpp_files=answer_op(tmp_path).cpp_files)
        def add(module: object, x: torch.Tensor, others: list[torch.Tensor]) -> None:
            del module, x, others

        with pytest.raises(UsageError, match="add was called with tensors on cpu and on meta"):
            add(torch.zeros(2), [torch.zeros(2, device="meta")])


class TestTargetOf:
    BOTH = Spec("op", cpp_files=["/x/op.cpp"], cuda_files=["/x/op.cuh"])
    CUDA = Spec("op", cuda_files=["/x/op.cuh"])

    def test_without_a_device_and_with_two_kinds_it_is_an_error(self) -> None:
        with pytest.raises(UsageError, match="has sources for cuda and cpu, and no device was given"):
            target_of(self.BOTH, None)

    @pytest.mark.parametrize("device", ["", "tpu", "cuda:x", "cuda:-1"])
    def test_what_is_no_device_is_refused(self, device: str) -> None:
        with pytest.raises(UsageError, match="kjit does not build for device"):
            target_of(self.BOTH, device)


@pytest.mark.nvcc
def test_the_cuda_runtime_is_loaded_where_the_loader_does_not_find_it(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache_dir
    source = tmp_path / "op.cu"
    source.write_text("#include <cuda_runtime_api.h>\nint f() { return cudaDeviceSynchronize(); }\n")
    real, attempts = tvm_ffi.load_module, []

    def load_module(path: str) -> object:
        attempts.append(path)
        if len(attempts) == 1:
            raise RuntimeError(f"{path}: libcudart.so.13: cannot open shared object file: No such file or directory")
        with open("/proc/self/maps") as maps:
            assert "libcudart.so" in maps.read()
        return real(path)

    monkeypatch.setattr(tvm_ffi, "load_module", load_module)
    load_variant(Variant(Spec("op", cuda_files=[source]), Target.cuda("9.0a")))
    assert len(attempts) == 2


@pytest.mark.gpu
@pytest.mark.usefixtures("cache_dir")
def test_a_declared_op_runs_on_the_device_of_its_tensor(tmp_path: Path, answer_op: WriteOp) -> None:
    cpp = answer_op(tmp_path).cpp_files
    (tmp_path / "answer.cuh").write_text(
        textwrap.dedent("""
            #include <kjit/ffi.h>
            __global__ void add_one(float* p) { p[threadIdx.x] += 1; }
            void answer(kjit::TensorView x) {
              add_one<<<1, static_cast<unsigned>(x.numel())>>>(static_cast<float*>(x.data_ptr()));
            }
        """)
    )

    @kjit.module()
    def _answer() -> Spec:
        return Spec("answer", cpp_files=cpp, cuda_files=[tmp_path / "answer.cuh"], cuda_wrappers=[("answer", "answer")])

    x = torch.zeros(3, device="cuda")
    _answer(device=x.device).answer(x)
    torch.cuda.synchronize()
    assert x.tolist() == [1, 1, 1]
    assert _answer(device="cpu").answer() == 42
    assert _answer.variants([target_of(_answer.specs()[0], x.device)])[0].target.kind == "cuda"


@pytest.mark.nvcc
@pytest.mark.nightly
def test_a_cuda_module_is_compiled_and_loaded_where_nothing_else_loads_the_cuda_runtime(
    tmp_path: Path, cache_dir: Path
) -> None:
    del cache_dir
    (tmp_path / "op.cu").write_text(
        textwrap.dedent("""
            #include <cuda_runtime_api.h>
            #include <tvm/ffi/c_api.h>
            __global__ void fill(float* p) { p[threadIdx.x] = 1; }
            extern "C" __attribute__((visibility("default")))
            int __tvm_ffi_version(void*, const TVMFFIAny* args, int32_t n, TVMFFIAny* r) {
              int version = 0;
              cudaRuntimeGetVersion(&version);
              r->type_index = kTVMFFIInt;
              r->v_int64 = version;
              if (n > 1) fill<<<1, 1>>>(static_cast<float*>(args[0].v_ptr));
              return 0;
            }
        """)
    )
    script = f"""
        import kjit
        print(kjit.load_jit("op", cuda_files=[{str(tmp_path / "op.cu")!r}]).version())
    """
    first, second = (run(script, KJIT_CUDA_ARCH_LIST="9.0a") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert int(first.stdout) >= 12000
    assert (second.stdout, second.stderr) == (first.stdout, "")
