"""A candidate that tries to get out, and what it is let loose in; runs as another user as well."""

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import evokernel

KEY = "hunter2"

PROBE = r"""
import ctypes, importlib, os, pathlib, signal, socket, subprocess, sys, tempfile, threading, time
import torch

libc = ctypes.CDLL(None, use_errno=True)

def attempt(action):
    try:
        return str(action())[:4000]
    except BaseException as error:
        return type(error).__name__

def called(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return "done"

def text(path):
    return pathlib.Path(path).read_text()

def remote(pid):
    buffer = ctypes.create_string_buffer(16)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    other = (ctypes.c_void_p * 2)(0x400000, 8)
    return called("process_vm_readv", pid, local, 1, other, 1, 0)

def memory(pid, mode):
    start = int(text(f"/proc/{pid}/maps").split("-")[0], 16)
    with open(f"/proc/{pid}/mem", mode) as file:
        file.seek(start)
        return file.read(4)

def keys(name):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if "hunter2" in attempt(lambda: text(f"/proc/{pid}/{name}")):
            found.append(pid)
    return found

def unix(address):
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(address)
        return "connected"

def datagram(address):
    here, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return here.sendto(b"x", address)

def pair():
    here, there = socket.socketpair()
    here.send(b"through")
    return there.recv(99)

def write(path):
    pathlib.Path(path, "planted").write_text("x")
    return "written"

def threads_until_refused():
    threading.stack_size(1 << 16)
    for count in range(1000):
        try:
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        except RuntimeError:
            break
    return count

def neighbour(pid):
    return {
        "environment": lambda: text(f"/proc/{pid}/environ"),
        "memory": lambda: memory(pid, "rb"),
        "memory to write": lambda: memory(pid, "r+b"),
        "remote memory": lambda: remote(pid),
        "trace": lambda: called("ptrace", 16, pid, 0, 0),
        "folder": lambda: os.listdir(f"/proc/{pid}/cwd"),
        "file": lambda: os.readlink(f"/proc/{pid}/fd/0"),
        "signal": lambda: os.kill(pid, 0),
        "stop": lambda: os.kill(pid, signal.SIGWINCH),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 5),
        "processors": lambda: os.sched_setaffinity(pid, {0}),
    }

NETWORK = {
    "tcp": lambda here: socket.create_connection(("127.0.0.1", here["port"]), timeout=2),
    "udp": lambda here: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)),
    "ipv6": lambda here: socket.socket(socket.AF_INET6),
    "raw": lambda here: socket.socket(type=socket.SOCK_RAW, proto=1),
    "netlink": lambda here: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "packet": lambda here: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "vsock": lambda here: socket.socket(socket.AF_VSOCK),
    "unix": lambda here: unix(here["socket"]),
    "abstract": lambda here: unix("\0" + here["socket"]),
    "datagram": lambda here: datagram(here["datagram"]),
}
KERNEL = {
    "namespace": lambda here: called("unshare", 0x10000000),
    "mount": lambda here: called("mount", b"none", b"/mnt", b"tmpfs", 0, None),
    "segment": lambda here: called("shmget", 0, 4096, 0o1600),
    "queue": lambda here: called("msgget", 0, 0o1600),
    "hostname": lambda here: called("sethostname", b"x", 1),
    "clock": lambda here: time.clock_settime(time.CLOCK_REALTIME, time.time()),
    "filter": lambda here: called("prctl", 22, 2, 0, 0, 0),
    "visible memory": lambda here: called("prctl", 4, 0, 0, 0, 0),
    "death signal": lambda here: called("prctl", 1, 0, 0, 0, 0),
    "32 bits": lambda here: called("syscall", 0x40000000 | 41, 1, 1, 0),
}

class ModelNew(torch.nn.Module):
    def forward(self, here):
        status = dict(line.split(":", 1) for line in text("/proc/self/status").splitlines())
        neighbours = {name: neighbour(pid) for name, pid in here["pids"].items()}
        neighbours["reaper"] = neighbour(os.getppid())
        return {
            "environment": "\n".join(f"{k}={v}" for k, v in os.environ.items()),
            "birth environment": attempt(lambda: text("/proc/self/environ")),
            "keys": [*keys("environ"), *keys("cmdline")],
            "neighbours": {
                name: {what: attempt(action) for what, action in actions.items()}
                for name, actions in neighbours.items()
            },
            "network": {what: attempt(lambda: action(here)) for what, action in NETWORK.items()},
            "kernel": {what: attempt(lambda: action(here)) for what, action in KERNEL.items()},
            "files": {path: attempt(lambda: text(path)) for path in here["files"]},
            "folders": {path: attempt(lambda: os.listdir(path)) for path in here["folders"]},
            "written": {path: attempt(lambda: write(path)) for path in here["folders"]},
            "sysctl": attempt(lambda: open("/proc/sys/kernel/core_pattern", "w")),
            "references": [
                attempt(lambda: importlib.import_module("evokernel.tasks.softmax").__file__),
                attempt(lambda: importlib.import_module("evokernel.tasks").Model),
                attempt(lambda: pathlib.Path(here["package"], "tasks", "softmax.py").read_bytes()),
                *[name for name in sys.modules if name.startswith("evokernel.tasks.")],
            ],
            "scratch": attempt(lambda: write(tempfile.mkdtemp())),
            "program": attempt(lambda: subprocess.check_output(["uname"], text=True)),
            "pair": attempt(pair),
            "processes": [pid for pid in os.listdir("/proc") if pid.isdigit()],
            "capabilities": status["CapEff"].strip() + status["CapBnd"].strip(),
            "no new privileges": status["NoNewPrivs"].strip(),
            "open files": sorted(os.listdir("/proc/self/fd")),
            "threads": threads_until_refused() if here["is_limited"] else 0,
        }
"""


@contextmanager
def loose(isolation: str, base: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Which protections hold for the intruder, and what it brings back."""
    from evokernel.bench.messages import WorkerSpec
    from evokernel.bench.pool import WorkerPool

    cache, user, scratch = (base / name for name in ("cache", "user", "scratch"))
    for folder in (cache / "kernels", cache / "inductor", user, scratch):
        folder.mkdir(parents=True)
    secret, task = user / ".env", user / "task.py"
    secret.write_text(KEY)
    task.write_text("the reference")
    package = Path(evokernel.__file__).parent
    with ExitStack() as stack:
        port, sockets = _listen(stack, base)
        pool = stack.enter_context(
            WorkerPool(cache, isolation, path=(user,), base=scratch, hidden=(task, secret))
        )
        spec = WorkerSpec(role="candidate", source=PROBE, run_s=60)
        sibling, worker = (stack.enter_context(pool.fork(spec, _no_build)) for _ in range(2))
        worker.load([], {}, seed=1)
        held = worker.protections
        ours = [] if not held.landlock else [str(package), "/tmp", "/dev/shm", str(Path.home())]
        ours = [folder for folder in ours if Path(folder).exists()]
        here = {
            "pids": {
                "parent": os.getpid(),
                "server": pool.server_pids[0],
                "sibling": sibling.pids[0],
            },
            "port": port,
            **sockets,
            "files": [str(secret), str(task), "/etc/shadow"],
            "folders": [*map(str, (user, cache, cache / "kernels", cache / "inductor")), *ours],
            "package": str(package),
            "is_limited": held.process_limit,
        }
        worker.put("here", [here])
        yield held, worker.run("here").outputs


def _listen(stack: ExitStack, base: Path) -> tuple[int, dict[str, str]]:
    tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    places = {"socket": str(base / "socket"), "datagram": str(base / "datagram")}
    kinds = (("socket", socket.SOCK_STREAM), ("datagram", socket.SOCK_DGRAM))
    for name, kind in kinds:
        end = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
        end.bind(places[name])
        if kind == socket.SOCK_STREAM:
            end.listen()
            hidden = stack.enter_context(socket.socket(socket.AF_UNIX))
            hidden.bind("\0" + places[name])
            hidden.listen()
    return int(tcp.getsockname()[1]), places


def _no_build(kernel: object) -> Any:
    raise AssertionError("nothing to build")


def main() -> None:
    """Print what it finds under each isolation that is named."""
    os.environ["PROBE_API_KEY"] = KEY
    found = {}
    for isolation in sys.argv[1:]:
        with (
            tempfile.TemporaryDirectory() as folder,
            loose(isolation, Path(folder)) as (held, seen),
        ):
            found[isolation] = [held.model_dump(), seen]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
