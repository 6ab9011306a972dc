"""Sources become libraries or diagnostics: within limits, and through a cache that heals."""

import ctypes
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import evokernel
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.cpp import CppCompiler, signatures
from evokernel.compilers.cpp_messages import KERNEL, parse
from evokernel.compilers.cuda import CudaCompiler
from evokernel.compilers.toolkit import Toolkit
from evokernel.confinement.kernel import landlock_version
from evokernel.errors import CompilerMissing, ConfigError

ANSWER = 'extern "C" int answer() { return 42; }\n'
BROKEN = 'extern "C" void f(float* x) {\n  x[0] = undefined_name;\n}\n'
EXPLOSION = """\
template <int N, int P> struct T { enum { v = T<N - 1, 2 * P>::v + T<N - 1, 2 * P + 1>::v & 1 }; };
template <int P> struct T<0, P> { enum { v = P & 1 }; };
extern "C" int f() { return T<24, 1>::v; }
"""


def cpp(source: str, *flags: str, name: str = "kernel_0.cpp") -> KernelSource:
    return KernelSource(backend="cpp", source=source, flags=flags, name=name)


def built(result: Artefact | BuildFailure) -> Artefact:
    assert isinstance(result, Artefact), result
    return result


def failed(result: Artefact | BuildFailure) -> BuildFailure:
    assert isinstance(result, BuildFailure), result
    return result


def answer(artefact: Artefact) -> int:
    return ctypes.CDLL(artefact.path).answer()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def compiler(tmp_path):
    return CppCompiler(tmp_path, timeout_s=60)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return a function that makes a shell script the host compiler."""

    def install(body: str, version: str = "g++ 1.0") -> Path:
        script = tmp_path / "fake-g++"
        script.write_text(
            f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{body}\n'
        )
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        return script

    return install


def leftovers(folder: Path) -> list[Path]:
    builds = folder / "kernels" / "build"
    return [*builds.iterdir()] if builds.exists() else []


def test_second_build_comes_from_the_cache(compiler, tmp_path):
    first = built(compiler.build(cpp(ANSWER)))
    again = built(CppCompiler(tmp_path).build(cpp(ANSWER, name="other.cpp")))
    assert (first.cached, again.cached) == (False, True)
    assert (first.path, first.key, first.seconds) == (again.path, again.key, again.seconds)
    assert answer(again) == 42
    assert leftovers(tmp_path) == []


def test_key_holds_source_flags_and_search_paths(compiler, tmp_path, monkeypatch):
    keys = {compiler.build(k).key for k in (cpp(BROKEN), cpp(BROKEN + "\n"), cpp(BROKEN, "-O1"))}
    monkeypatch.setenv("CPATH", "/opt/other/include")
    keys.add(CppCompiler(tmp_path).build(cpp(BROKEN)).key)
    assert len(keys) == 4


def test_key_holds_the_compilers_version(tmp_path, fake):
    fake('exec g++ "$@"', version="g++ 12.1")
    old = built(CppCompiler(tmp_path).build(cpp(ANSWER)))
    fake('exec g++ "$@"', version="g++ 12.2")
    new = built(CppCompiler(tmp_path).build(cpp(ANSWER)))
    assert not new.cached
    assert new.key != old.key


@pytest.mark.parametrize("damage", [b"", b"\x7fELF half a library", None])
def test_damaged_library_is_built_again(compiler, damage):
    path = Path(built(compiler.build(cpp(ANSWER))).path)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    repaired = built(compiler.build(cpp(ANSWER)))
    assert not repaired.cached
    assert answer(repaired) == 42
    assert built(compiler.build(cpp(ANSWER))).cached


@pytest.mark.parametrize("damage", ["", "{", '{"key": "x", "library": null}'])
def test_damaged_entry_is_built_again(compiler, tmp_path, damage):
    artefact = built(compiler.build(cpp(ANSWER)))
    (entry,) = (tmp_path / "kernels").glob(f"*/{artefact.key}.json")
    entry.write_text(damage)
    assert not built(compiler.build(cpp(ANSWER))).cached
    assert built(compiler.build(cpp(ANSWER))).cached


def test_failure_is_not_compiled_twice(compiler, tmp_path):
    first = failed(compiler.build(cpp(BROKEN)))
    again = failed(CppCompiler(tmp_path).build(cpp(BROKEN, name="mine.cpp")))
    assert (first.cached, again.cached) == (False, True)
    assert first.diagnostics[0].file == "kernel_0.cpp"
    assert again.diagnostics[0].file == "mine.cpp"
    assert "mine.cpp:2" in again.log


def test_leftovers_of_killed_builds_neither_block_nor_stay(compiler, tmp_path):
    key = failed(compiler.build(cpp(BROKEN))).key
    folder = tmp_path / "kernels"
    for name in ("lock", "build/lock", f"{key[:2]}/lock", f"{key[:2]}/half.tmp"):
        (folder / name).touch()
    for name, age in (("old", 7200), ("running", 0)):
        (folder / "build" / name).mkdir()
        os.utime(folder / "build" / name, (time.time() - age,) * 2)
    assert answer(built(compiler.build(cpp(ANSWER)))) == 42
    assert sorted(p.name for p in leftovers(tmp_path)) == ["lock", "running"]


def test_processes_build_the_same_kernel_at_once(tmp_path):
    code = f"""
from pathlib import Path
from evokernel.compilers import KernelSource
from evokernel.compilers.cpp import CppCompiler
built = CppCompiler(Path({str(tmp_path)!r})).build(
    KernelSource(backend="cpp", source={ANSWER!r}))
import ctypes
print(built.key, ctypes.CDLL(built.path).answer())
"""
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {process.communicate(timeout=60)[0] for process in running}
    assert len(answers) == 1
    assert answers.pop().split()[1] == "42"
    assert leftovers(tmp_path) == []


def pids(log: str) -> list[int]:
    return [int(pid) for line in re.findall("pids (.*)", log) for pid in line.split()]


def test_hanging_compiler_is_killed_with_its_children(tmp_path, fake):
    fake("sleep 300 & echo pids $! $$; echo > temporary.s; wait")
    compiler = CppCompiler(tmp_path, timeout_s=2)
    result = failed(compiler.build(cpp(ANSWER)))
    assert result.timed_out
    assert result.diagnostics[0].message == "the compiler was stopped at its limit of 2 s"
    assert [is_alive(pid) for pid in pids(result.log)] == [False, False]
    assert leftovers(tmp_path) == []
    assert failed(compiler.build(cpp(ANSWER))).cached
    assert failed(CppCompiler(tmp_path, timeout_s=0.5).build(cpp(ANSWER))).cached


def test_timeout_is_tried_again_with_a_larger_limit(tmp_path, fake):
    fake('sleep 1; exec g++ "$@"')
    assert failed(CppCompiler(tmp_path, timeout_s=0.5).build(cpp(ANSWER))).timed_out
    assert answer(built(CppCompiler(tmp_path, timeout_s=60).build(cpp(ANSWER)))) == 42


def test_children_of_a_finished_compiler_are_killed_too(tmp_path, fake):
    fake('sleep 300 & echo pids $!; exec g++ "$@"')
    artefact = built(CppCompiler(tmp_path).build(cpp(ANSWER)))
    assert answer(artefact) == 42
    assert [is_alive(pid) for pid in pids(artefact.log)] == [False]


def test_endless_source_hits_the_time_limit(tmp_path):
    result = failed(CppCompiler(tmp_path, timeout_s=1).build(cpp(EXPLOSION)))
    assert result.timed_out
    assert leftovers(tmp_path) == []


def test_greedy_source_hits_the_memory_limit(tmp_path):
    small = CppCompiler(tmp_path, timeout_s=60, memory_bytes=200 * 2**20)
    result = failed(small.build(cpp(EXPLOSION)))
    assert result.timed_out
    assert result.diagnostics[0].message == "the compiler ran out of its 0.195 GiB of memory"
    assert failed(small.build(cpp(EXPLOSION))).cached


def test_compiler_killed_from_outside_is_tried_again(tmp_path, fake):
    fake("echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1")
    compiler = CppCompiler(tmp_path)
    result = failed(compiler.build(cpp(ANSWER)))
    assert result.timed_out
    assert "killed from outside" in result.diagnostics[0].message
    assert not failed(compiler.build(cpp(ANSWER))).cached


NVRTC = r"""
#include <csignal>
#include <cstring>
static bool is_odd;
static const char LOG[] = SAID;
extern "C" int nvrtcVersion(int* major, int* minor) { *major = 13; *minor = 0; return 0; }
extern "C" int nvrtcCreateProgram(void** program, const char* source, const char*, int,
                                  const char**, const char**) {
  is_odd = std::strstr(source, "odd");
  *program = &is_odd;
  return 0;
}
extern "C" int nvrtcCompileProgram(void*, int, const char**) { return is_odd ? (ODD) : 0; }
extern "C" int nvrtcGetProgramLogSize(void*, size_t* n) { *n = sizeof LOG; return 0; }
extern "C" int nvrtcGetProgramLog(void*, char* out) {
  std::memcpy(out, LOG, sizeof LOG);
  return 0;
}
extern "C" int CUBIN(void*, size_t* n) { *n = 5; return 0; }
extern "C" int nvrtcGetCUBIN(void*, char* out) { std::memcpy(out, "cubin", 5); return 0; }
extern "C" const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_INTERNAL_ERROR"; }
"""


@pytest.fixture
def nvrtc(compiler, tmp_path):
    """Return a function that makes a library like NVRTC, odd in one respect."""

    def make(odd: str = "6", said: str = "", cubin: str = "nvrtcGetCUBINSize") -> CudaCompiler:
        flags = f"-DODD={odd}", f'-DSAID="{said}"', f"-DCUBIN={cubin}"
        library = built(compiler.build(cpp(NVRTC, *flags))).path
        toolkit = Toolkit(library=library, origin="toolkit", includes=())
        return CudaCompiler(tmp_path / "cuda", arch="sm_90a", toolkit=toolkit)

    return make


def cuda(source: str) -> KernelSource:
    return KernelSource(backend="cuda", source=source, name="mine.cu")


def test_words_about_memory_are_no_fault_of_a_kernel_that_was_built(nvrtc):
    compiler = nvrtc(said="std::bad_alloc")
    assert Path(built(compiler.build(cuda("plain"))).path).read_bytes() == b"cubin"
    refused = failed(compiler.build(cuda("odd")))
    assert refused.diagnostics[0].message == "the compiler ran out of its 4 GiB of memory"


def test_a_crash_of_the_compilers_process_is_not_kept(nvrtc):
    compiler = nvrtc(odd="std::raise(SIGSEGV)")
    for _ in range(2):
        result = failed(compiler.build(cuda("odd")))
        assert result.timed_out
        assert not result.cached
        assert "killed from outside" in result.diagnostics[0].message
    assert compiler.is_fenced


def test_what_ends_without_an_answer_is_blamed_only_where_the_simplest_kernel_is_built(nvrtc):
    compiler = nvrtc(odd="11")  # neither of the two ways in which NVRTC refuses a source
    result = failed(compiler.build(cuda("odd")))
    assert result.diagnostics[0].file == "mine.cu"
    assert "NVRTC gave no answer: nvrtc: NVRTC_ERROR_INTERNAL" in result.diagnostics[0].message
    assert compiler.is_fenced


def test_a_fault_of_ours_is_not_the_kernels(nvrtc):
    compiler = nvrtc(cubin="misnamed")
    with pytest.raises(CompilerMissing, match="does not build the simplest kernel .*nvrtcGetCUBIN"):
        compiler.build(cuda("plain"))
    assert compiler.is_fenced


def test_flood_of_messages_is_capped(compiler):
    lines = [f"int a{n} = missing_{n}; // {'long ' * 100}" for n in range(500)]
    result = failed(compiler.build(cpp("\n".join(lines))))
    assert len(result.diagnostics) <= 12
    assert result.diagnostics[0].line == 1
    assert max(len(d.excerpt or "") for d in result.diagnostics) <= 200
    assert len(result.log) <= 8000


def test_compiler_sees_no_keys(tmp_path, fake, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    fake('env; exec g++ "$@"')
    log = built(CppCompiler(tmp_path).build(cpp(ANSWER))).log
    assert "PATH=" in log
    assert "secret" not in log


REFERENCE = Path(evokernel.__file__).parent / "tasks" / "softmax.py"


@pytest.mark.skipif(not landlock_version(), reason="the kernel offers no Landlock")
@pytest.mark.parametrize(
    "text",
    [
        'extern "C" int answer() { return\n#include "{path}"\n; }',
        'extern "C" int answer() { return\n#include "../../../secret"\n; }',
        'asm(".section .rodata\\n .incbin \\"{path}\\"\\n");',
        '#include "/proc/self/environ"\n',
        f'#include "{REFERENCE}"\n',
        f'asm(".incbin \\"{REFERENCE}\\"");',
        '#include "/etc/shadow"\n',
    ],
)
def test_a_kernel_takes_in_no_other_file(tmp_path, compiler, text):
    (tmp_path / "secret").write_text("42")
    result = failed(compiler.build(cpp(text.replace("{path}", str(tmp_path / "secret")))))
    assert re.search("Permission denied|file not found", result.log)
    assert compiler.is_fenced


def test_a_compiler_writes_nowhere_else_and_calls_nobody(tmp_path, fake):
    fake(
        f'echo x >{tmp_path}/planted; bash -c "exec 3<>/dev/tcp/127.0.0.1/1"; '
        'touch own; chown 1 own; exec g++ "$@"'
    )
    compiler = CppCompiler(tmp_path)
    log = built(compiler.build(cpp(ANSWER))).log
    assert "/dev/tcp/127.0.0.1/1: Operation not permitted" in log
    assert "changing ownership of 'own': Operation not permitted" in log
    assert compiler.is_fenced
    if landlock_version():
        assert not (tmp_path / "planted").exists()


def test_a_compiler_that_needs_more_than_the_fence_allows_goes_without(tmp_path, fake):
    if not landlock_version():
        pytest.skip("the kernel offers no Landlock")
    needed = tmp_path / "needed"
    needed.write_text("x")
    fake(f'cat {needed} || exit 1; exec g++ "$@"')
    compiler = CppCompiler(tmp_path)
    assert answer(built(compiler.build(cpp(ANSWER)))) == 42
    assert not compiler.is_fenced


def test_a_terminal_is_not_written_to_through_messages(compiler):
    result = failed(compiler.build(cpp("#error \x1b]0;title\x07\x1b[31m red\n")))
    shown = result.log + result.diagnostics[0].message + (result.diagnostics[0].excerpt or "")
    assert not {"\x1b", "\x07"} & set(shown)
    assert "red" in shown


def test_missing_compiler_says_what_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerMissing, match=r"`g\+\+` and `clang\+\+`.*install g\+\+"):
        CppCompiler(tmp_path)


@pytest.mark.parametrize("chosen", ["/nowhere/g++", "'unclosed"])
def test_chosen_compiler_that_is_missing_is_named(tmp_path, monkeypatch, chosen):
    monkeypatch.setenv("CXX", chosen)
    with pytest.raises(CompilerMissing, match=r"`\$CXX` is `.*`, which cannot be run"):
        CppCompiler(tmp_path)


def test_chosen_compiler_may_carry_arguments(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "env g++")
    assert answer(built(CppCompiler(tmp_path).build(cpp(ANSWER)))) == 42


def test_broken_compiler_is_not_the_kernels_fault(tmp_path, fake):
    fake("echo 'fake-g++: fatal error: cannot execute cc1plus' >&2; exit 1")
    for _ in range(2):
        with pytest.raises(CompilerMissing, match="simplest OpenMP kernel.*cc1plus"):
            CppCompiler(tmp_path).build(cpp(ANSWER))
    assert not [*tmp_path.glob("kernels/*/*.json")]


def test_silent_compiler_is_missing(tmp_path, fake):
    fake("exit 1").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(CompilerMissing, match="--version` does not answer"):
        CppCompiler(tmp_path).build(cpp(ANSWER))


def test_unwritable_cache_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cache of built kernels `.*/file/kernels`.*EVOKERNEL"):
        CppCompiler(tmp_path / "file").build(cpp(ANSWER))


def test_full_disk_is_named_and_not_remembered(tmp_path):
    code = f"""
import subprocess
from pathlib import Path
from evokernel.compilers import KernelSource
from evokernel.compilers.cpp import CppCompiler
from evokernel.errors import ConfigError
folder = Path({str(tmp_path)!r})
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20k", "none", folder], check=True)
try:
    print(CppCompiler(folder).build(KernelSource(backend="cpp", source={ANSWER!r})))
except ConfigError as error:
    print("config:", error)
print("entries:", [*folder.glob("kernels/*/*.json")])
"""
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "ConfigError" not in done.stderr and done.returncode:
        pytest.skip(f"no private mounts here: {done.stderr.strip().splitlines()[-1:]}")
    assert f"config: cannot write the cache of built kernels `{tmp_path}/kernels`" in done.stdout
    assert "entries: []" in done.stdout


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        (BROKEN, 2, "'undefined_name' was not declared in this scope"),
        ('#include "nope.h"\n', 1, "nope.h: No such file or directory"),
        ("#include <torch/extension.h>\n", 1, "torch/extension.h: No such file or directory"),
        ("int n = 0;\nint b = bloccDim + n;\n", 2, "'bloccDim' was not declared in this scope"),
        ("#include <vector>\n\nstd::vector<int&> v;\n", 3, "(in bits/new_allocator.h:"),
        ("float g(float);\nfloat f() { return g(1); }\n", 1, "undefined reference to `g(float)`"),
        ('int f() {\n  asm("frobnicate");\n  return 1;\n}\n', None, "no such instruction"),
        (
            "// page one\f// page two\nint f() { return g; }\n",
            2,
            "'g' was not declared in this scope",
        ),
        ("#error the author's own words\n", 1, "#error the author's own words"),
    ],
)
def test_error_names_line_and_message(compiler, source, line, message):
    result = failed(compiler.build(cpp(source)))
    first = result.diagnostics[0]
    assert (first.severity, first.file, first.line) == ("error", "kernel_0.cpp", line)
    assert message in first.message
    assert first.excerpt == (source.split("\n")[line - 1].strip() if line else None)
    assert not result.timed_out


def test_warning_of_a_built_kernel_is_kept(compiler):
    artefact = built(compiler.build(cpp('extern "C" int f(int x) {\n  if (x) return 1;\n}\n')))
    (warning,) = artefact.diagnostics
    assert (warning.severity, warning.file, warning.line) == ("warning", "kernel_0.cpp", 3)
    assert "kernel_0.cpp:3" in artefact.log


CLANG = f"""\
In file included from {KERNEL}:1:
In file included from /usr/include/c++/12/vector:61:
/usr/include/c++/12/bits/new_allocator.h:63:20: error: 'pointer' declared as a pointer to 'int &'
      typedef _Tp*       pointer;
                         ^
{KERNEL}:3:18: note: in instantiation of template class 'std::vector<int &>' requested here
std::vector<int&> v;
                 ^
{KERNEL}:4:9: warning: unused variable 'u' [-Wunused-variable]
{KERNEL}:5:7: fatal error: use of undeclared identifier 'foo'
ld.lld: error: undefined symbol: bar(int)
>>> referenced by {KERNEL}
clang: error: linker command failed with exit code 1 (use -v to see invocation)
"""


def test_clang_and_lld_are_read_too():
    source = "#include <vector>\n\nstd::vector<int&> v;\n int u;\nx = foo;\nbar(1);\n"
    found = [(d.severity, d.line, d.message) for d in parse(CLANG, source)]
    assert found == [
        ("error", 3, "'pointer' declared as a pointer to 'int &' (in bits/new_allocator.h:63)"),
        ("error", 5, "use of undeclared identifier 'foo'"),
        ("error", 6, "undefined reference to `bar(int)`"),
        ("warning", 4, "unused variable 'u' [-Wunused-variable]"),
    ]


def test_quoted_source_is_no_message(compiler):
    source = f"int x = y; // {KERNEL}:1: error: undefined reference to `y`\n"
    (only,) = failed(compiler.build(cpp(source))).diagnostics
    assert only.message == "'y' was not declared in this scope"
    assert parse(f"undefined reference to `z`\n{source}", source)[0].message.endswith("`z`")
    assert len(parse(f"undefined reference to `z`\n{source}", source)) == 1


def test_warning_of_the_linker_is_a_warning():
    (only,) = parse("/usr/bin/ld: warning: k.o: missing .note.GNU-stack section\n", "")
    assert (only.severity, only.line) == ("warning", None)


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("-ffast-math", "denormal"),
        ("-Ofast", "denormal"),
        ("-funsafe-math-optimizations", "denormal"),
        ("-mdaz-ftz", "denormal"),
        ("-Wl,-rpath,/tmp", "linker"),
        ("-fplugin=evil", "ours to choose"),
        ("-fprofile-generate", "ours to choose"),
        ("-m32", "could not load"),
        ("-I/usr/include/eigen3", "includes and links nothing"),
        ("-lopenblas", "links only"),
        ("other.cpp", "only -O, -f"),
        ("@flags", "another tool"),
        ("-o", "only -O, -f"),
        ("-DX=1\n-Ofast", "only -O, -f"),
    ],
)
def test_flag_is_refused_with_its_reason(compiler, flag, reason):
    result = failed(compiler.build(cpp(ANSWER, flag)))
    assert result.diagnostics[0].message.startswith(f"flag `{flag}` is refused: ")
    assert reason in result.diagnostics[0].message


def test_authors_flags_are_passed_on(compiler):
    source = "static_assert(__cplusplus > 201703L && ANSWER == 42);\n" + ANSWER
    flags = ("-std=c++20", "-DANSWER=42", "-O2", "-funroll-loops", "-mtune=generic", "-Wall", "-lm")
    flags += ("-fassociative-math", "-fno-signed-zeros", "--param=max-unroll-times=4")
    assert answer(built(compiler.build(cpp(source, *flags)))) == 42


PROTOTYPES = r"""
// extern "C" void commented(int x);
/* extern "C" void too(int x); */
const char* text = "extern \"C\" void text(int x) {";
const char* raw = R"x(extern "C" void raw(int y) {)x";
#define API extern "C" __attribute__((visibility("default")))
#define RESTRICT __restrict__
#ifdef __cplusplus
extern "C" {
#endif
  #pragma GCC push_options
void one(const float* __restrict x, float *out, int64_t n) { if (n) { out[0] = '{'; } }
static void hidden(int x) {}
int two(void);
double three(std::size_t, const uint16_t* RESTRICT p, bool flag = true, float q[], long long m)
    noexcept { return 1'000.0; }
#if 0
void off(int) {}
#else
void on(unsigned n) {}
#endif
#ifdef __cplusplus
}
#endif
namespace detail { template <class T> T f(T x) { return x; } struct S { void m(int) {} };
extern "C" void inner(const int32_t *const a) {} }
using real = float; typedef unsigned short half_bits;
API void four(const real* x, half_bits* y, void* z) { auto l = [&](int i) { return i; }; }
extern "C" [[gnu::noinline]] auto five(int8_t a) -> double { return 1; }
int list[] = {1, 2, 3};
extern "C" int counter;
void plain(float* x) {}
extern "C" void __attribute__((target("avx2"))) last(__bf16* b, char c, unsigned long e) {}
"""


def test_signatures_are_read_from_the_text():
    assert [str(found) for found in signatures(PROTOTYPES)] == [
        "void one(const float32* x, float32* out, int64 n)",
        "int32 two()",
        "float64 three(uint64 arg1, const uint16* p, bool flag, float32* q, int64 m)",
        "void on(uint32 n)",
        "void inner(const int32* a)",
        "void four(const float32* x, uint16* y, void* z)",
        "float64 five(int8 a)",
        "void last(bfloat16* b, int8 c, uint64 e)",
    ]
    assert not any(found.problem for found in signatures(PROTOTYPES))


@pytest.mark.parametrize(
    ("prototype", "problem"),
    [
        ("void f(int n, std::vector<float>& v)", "parameter 2 `v`: `std::vector<float>& v` is a"),
        ("void f(float** v)", "parameter 1 `v`: type `float** v` is not supported"),
        ("void f(int (*back)(int))", "parameter 1 `arg1`: type `int(* back)(int)` is not"),
        ("void f(struct Shape s)", "parameter 1 `s`: type `struct Shape s` is not supported"),
        ("void f(_Float16 h)", "parameter 1 `h`: a float16 cannot be passed by value"),
        ("void f(int n, ...)", "parameter 2 `arg2`: type `...` is not supported"),
        ("float* f(int n)", "result: cannot return `float*`"),
    ],
)
def test_signature_that_python_cannot_call_says_why(prototype, problem):
    (found,) = signatures(f'extern "C" {prototype} {{}}')
    assert problem in found.problem


@pytest.mark.parametrize("source", ["", "}}}{{{", 'extern "C"', 'extern "C" {', "/* ", '"', "#if"])
def test_text_that_is_no_source_has_no_signatures(source):
    assert signatures(source) == ()
