"""The GPU exhibits of the zoo, without a GPU: each kernel is built, and each launch fits it."""

import ast
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from evokernel.compilers import Artefact, KernelSource
from evokernel.compilers.cuda import CudaCompiler
from evokernel.compilers.signatures import KERNELS_ONLY, signatures
from evokernel.compilers.toolkit import Toolkit
from evokernel.compilers.triton import TritonCompiler
from evokernel.zoo import Exhibit, exhibits, habitats

ARCH = "sm_90a"
ON_GPU = [exhibit for exhibit in exhibits() if exhibit.needs_gpu]
IN_CUDA = [exhibit for exhibit in ON_GPU if exhibit.backend == "cuda"]
IN_TRITON = [exhibit for exhibit in ON_GPU if exhibit.backend == "triton"]

# What kernels of the zoo take, by the names of their parameters.
FLOATS = {"x", "a", "b", "out", "to", "top", "sum"}
CONSTANTS = {"BLOCK": 1024, "PRECISION": "ieee"}


def sources(text: str) -> dict[str, str]:
    """CUDA texts of a candidate by the variable that holds the module."""
    return {
        node.targets[0].id: node.value.args[0].value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "jit.cuda_module"
        and isinstance(node.value.args[0], ast.Constant)
    }


def launches(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Module, kernel, sizes and arguments of each launch of a CUDA kernel."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            kernel, sizes = node.func.value, node.func.slice
            if isinstance(kernel, ast.Attribute) and isinstance(kernel.value, ast.Name):
                count = len(sizes.elts) if isinstance(sizes, ast.Tuple) else 1
                yield kernel.value.id, kernel.attr, count, len(node.args)


def name_of(exhibit: Exhibit) -> str:
    return exhibit.name


def test_there_is_enough_for_gpus():
    cheats = [exhibit for exhibit in ON_GPU if exhibit.kind != "honest"]
    assert len(cheats) >= 40
    assert len({exhibit.code for exhibit in cheats}) >= 22
    assert len(ON_GPU) - len(cheats) >= 20
    assert {exhibit.backend for exhibit in cheats} == {"cuda", "triton"}


def test_who_wants_time_has_an_honest_twin_in_its_language():
    for exhibit in ON_GPU:
        assert habitats()[exhibit.task].honest(exhibit.backend), exhibit.name
        assert exhibit.twin.backend == exhibit.backend
        assert bool(sources(exhibit.twin.source)) == (exhibit.backend == "cuda")


@pytest.mark.parametrize("exhibit", IN_CUDA, ids=name_of)
def test_each_launch_fits_its_kernel(exhibit):
    text = exhibit.candidate().source
    modules = sources(text)
    offered = {
        (module, signature.name): len(signature.parameters)
        for module, source in modules.items()
        for signature in signatures(source, KERNELS_ONLY["cuda"])
        if not signature.problem
    }
    for module, kernel, sizes, arguments in launches(text):
        if module in modules:
            assert (sizes, arguments) == (sizes, offered[module, kernel]), kernel
            assert sizes in {2, 3}


@pytest.mark.skipif(Toolkit.found().library is None, reason="NVRTC is not installed")
def test_every_cuda_kernel_compiles(warm_cache):
    compiler = CudaCompiler(warm_cache, arch=ARCH)
    exhibited = {e.name: e.candidate().source for e in IN_CUDA}
    offered = {habitat.name: habitat.cuda for habitat in habitats().values()}
    texts = {
        text: f"{name}.cu"
        for name, source in (exhibited | offered).items()
        for text in sources(source).values()
    }
    kernels = [KernelSource(backend="cuda", source=text, name=n) for text, n in texts.items()]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(compiler.build, kernels))
    failed = [built.log for built in found if not isinstance(built, Artefact)]
    assert len(found) >= 24
    assert not failed


def triton_module() -> str:
    """Every Triton kernel of the zoo in one module, each under a name of its own."""
    texts = {e.candidate().source for e in IN_TRITON}
    texts |= {habitat.triton for habitat in habitats().values() if habitat.triton}
    functions: dict[str, ast.FunctionDef] = {}
    for text in sorted(texts):
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = [ast.parse("triton.jit", mode="eval").body]
                functions.setdefault(ast.dump(node), node)
    lines = ["import triton", "import triton.language as tl"]
    wanted: dict[str, dict[str, object]] = {}
    for number, node in enumerate(functions.values()):
        node.name = f"{node.name}_{number}"
        names = [argument.arg for argument in node.args.args]
        known = {name: "*fp32" if name in FLOATS else "i32" for name in names}
        wanted[node.name] = {name: CONSTANTS.get(name, known[name]) for name in names}
        lines.append(ast.unparse(node))
    return "\n\n".join([*lines, f"LAUNCHES = {wanted!r}"]) + "\n"


def test_every_triton_kernel_compiles(warm_cache):
    pytest.importorskip("triton")
    kernel = KernelSource(backend="triton", source=triton_module(), name="zoo.py")
    built = TritonCompiler(warm_cache, arch=ARCH).build(kernel)
    assert isinstance(built, Artefact), built
    assert len(built.resources) >= 7
