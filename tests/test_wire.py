"""Frames and tensors between processes that do not trust each other."""

import os
import socket
import struct
from pathlib import Path

import pytest
import torch

from evokernel.bench.messages import Foreign, Variant
from evokernel.bench.tensors import Package, pack, vary
from evokernel.bench.trees import BadTree, decode, encode
from evokernel.bench.wire import BadFrame, BrokenWire, Wire
from evokernel.errors import WorkerError


def frame(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def read_three_times(wire: Wire) -> None:
    for _ in range(3):
        wire.feed()
        wire.take()


def test_messages_arrive_in_order_with_their_files() -> None:
    ours, other = Wire.pair()
    theirs = Wire(other)
    read, write = os.pipe()
    ours.send({"n": 1})
    ours.send({"n": 2}, (write,))
    assert theirs.receive() == ({"n": 1}, ())
    message, (copy,) = theirs.receive()
    assert message == {"n": 2}
    os.write(copy, b"through")
    assert os.read(read, 10) == b"through"
    for file in (read, write, copy):
        os.close(file)
    ours.close()
    with pytest.raises(BrokenWire, match="closed"):
        theirs.receive()
    theirs.close()


@pytest.mark.parametrize(
    "sent",
    [
        frame(b"not json"),
        frame(b"[1, 2]"),
        frame(b'{"files": 1}'),
        frame(b'{"files": -1}'),
        frame(b'{"files": "x"}'),
        frame(b"[" * 100_000),
        frame(b"\xff\xfe"),
        frame(b'{"a": NaN}'),
        frame(b'{"a": -Infinity}'),
        frame(b'{"a": 1e999}'),
        frame(b'{"a": 1' + b"0" * 30 + b"}"),
        frame(b'{"a": 1' + b"0" * 5000 + b"}"),
        struct.pack("!I", 1 << 31),
    ],
)
def test_what_is_no_frame_is_refused(sent: bytes) -> None:
    wire, other = Wire.pair()
    with other:
        other.sendall(sent)
        with pytest.raises(BadFrame):
            wire.receive()
    wire.close()


def test_files_that_no_frame_announced_are_refused_and_closed() -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    wire, other = Wire.pair()
    before = open_files()
    for body, count in ((frame(b"{}"), 1), (b"\0", 1)):
        socket.send_fds(other, [body], [null] * count)
    with pytest.raises(BadFrame):
        read_three_times(wire)
    wire.close()
    other.close()
    assert open_files() == before - 2
    os.close(null)


def test_a_flood_of_files_is_refused_before_ours_run_out() -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    wire, other = Wire.pair()
    for _ in range(3):
        socket.send_fds(other, [b"\0"], [null] * 4)
    with pytest.raises(BadFrame, match="more files"):
        read_three_times(wire)
    socket.send_fds(other, [b"\0"], [null] * 9)
    with pytest.raises(BadFrame, match="more files"):
        wire.feed()
    wire.close()
    other.close()
    os.close(null)


def test_what_waits_before_a_request_is_seen() -> None:
    wire, other = Wire.pair()
    assert wire.is_idle
    other.send(b"x")
    assert not wire.is_idle
    other.close()
    wire.close()
    gone, other = Wire.pair()
    other.close()
    assert gone.is_idle  # the next call finds that it is broken
    gone.close()


def test_a_frame_may_come_in_pieces() -> None:
    wire, other = Wire.pair()
    with other:
        for byte in frame(b'{"a": 1}'):
            assert wire.take() is None
            other.send(bytes([byte]))
            wire.feed()
        assert wire.take() == ({"a": 1}, ())
    wire.close()


def test_a_reader_that_does_not_read_is_given_up() -> None:
    wire, other = Wire.pair()
    with other, pytest.raises(BrokenWire, match="cannot send"):
        wire.send({"text": "x" * 5_000_000}, timeout_s=0.05)
    wire.close()


@pytest.mark.parametrize(
    "value",
    [
        [1, 2.5, None, True, "text", float("inf"), 1 + 2j],
        ({"a": (1,), 3: []},),
        {"dtype": torch.float16, "device": torch.device("cpu")},
    ],
)
def test_plain_values_survive(value: object) -> None:
    assert decode(encode(value, lambda tensor: None, foreign=False), []) == value


def test_other_objects_are_named_or_refused() -> None:
    tree = encode([{1, 2}, torch.empty(2, device="meta")], lambda tensor: None, foreign=True)
    meta = "torch.Tensor (torch.strided, torch.float32, meta)"
    assert decode(tree, []) == [Foreign(type_name="set"), Foreign(type_name=meta)]
    with pytest.raises(BadTree, match="`set`"):
        encode([{1, 2}], lambda tensor: None, foreign=False)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        {},
        {"l": 3},
        {"t": 0},
        {"t": -1},
        {"t": True},
        {"v": []},
        {"dtype": "Tensor"},
        {"dtype": "__dict__"},
        {"d": [[[1], {"v": 1}]]},
        {"l": [{"v": 1}] * 20_000},
        {"eval": "1"},
    ],
)
def test_a_damaged_structure_is_refused(tree: object) -> None:
    with pytest.raises(BadTree):
        decode(tree, [])


def test_tensors_keep_bits_and_strides() -> None:
    x = torch.randn(4, 6)
    values = [x.t(), x[:, ::2], x[0].expand(3, 6), torch.empty(0, 3), torch.tensor(7)]
    with pack(values) as sent:
        copies = tuple(os.dup(file) for file in sent.files)
        received = Package.receive(sent.message, copies, limit=sent.bytes)
    got = received.value()
    received.close()
    assert all(torch.equal(a, b) for a, b in zip(got, values, strict=True))
    assert [a.stride() for a in got] == [b.stride() for b in values]
    got[0].zero_()  # private memory: writable, and nobody else's


def test_a_package_that_lies_is_refused() -> None:
    with pack([torch.ones(100)]) as sent:
        (layout,) = sent.message["layouts"]
        lies = [
            {"bytes": sent.bytes + 1},
            {"bytes": -1},
            {"bytes": "x"},
            {"layouts": [layout | {"shape": (200,), "span": 200}]},
            {"layouts": [layout | {"shape": (200,)}]},
            {"layouts": [layout | {"offset": 64}]},
            {"layouts": [layout | {"offset": -64}]},
            {"layouts": [layout | {"strides": (-1,)}]},
            {"layouts": [layout | {"dtype": "Tensor"}]},
            {"layouts": [layout | {"shape": (1 << 62, 1 << 62), "strides": (0, 0)}]},
        ]
        for lie in lies:
            with pytest.raises(BadTree):
                Package.receive(sent.message | lie, (os.dup(*sent.files),), limit=1 << 20)
        with pytest.raises(BadTree, match="more than"):
            Package.receive(sent.message, (os.dup(*sent.files),), limit=100)
        before = open_files()
        expanded = layout | {"shape": (1 << 40,), "strides": (0,), "span": 1}
        message = sent.message | {"layouts": [expanded]}
        with pytest.raises(BadTree, match="unfold"):
            Package.receive(message, (os.dup(*sent.files),), limit=1 << 20)
        assert open_files() == before


def test_memory_that_could_still_change_is_refused() -> None:
    message = {"tree": {"l": []}, "layouts": [], "bytes": 64}
    shared = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.ftruncate(shared, 64)
    with pytest.raises(BadTree, match="could still change"):
        Package.receive(message, (shared,), limit=64)
    ours, other = socket.socketpair()
    with ours, other, pytest.raises(BadTree, match="no shared memory"):
        Package.receive(message, (os.dup(ours.fileno()),), limit=64)


def test_what_cannot_be_packed_is_named() -> None:
    with pytest.raises(WorkerError, match="`function`"):
        pack([lambda: None])
    with pytest.raises(WorkerError, match="torch.sparse_coo"):
        pack([torch.eye(2).to_sparse()])


def test_variants_keep_to_their_bounds() -> None:
    variant = Variant(sign=-1, scale=1.5, offset=-0.1, roll=5, mixed=((0, 1), (1, 4)), moved=(2, 3))

    def changed(index: int, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        vary(index, x, out, variant)
        return out

    unit = torch.linspace(0, 0.999, 64)
    out = changed(0, unit)
    assert 0 <= float(out.min()) < float(out.max()) < 1
    assert not torch.equal(out.sort().values, unit)
    rows = torch.rand(8, 4).softmax(-1)
    out = changed(1, rows.flatten()).view(8, 4)
    assert torch.allclose(out.sum(-1), torch.ones(8))
    assert torch.allclose(out, (0.75 * rows + 0.25 / 4).roll(5, 0))
    labels = torch.arange(11)
    moved = [changed(index, labels).tolist() for index in (2, 3)]
    assert moved == [labels.roll(25).tolist(), labels.roll(35).tolist()]


def test_variants_change_floats_only_and_respect_signs() -> None:
    variant = Variant(sign=-1, scale=2.0, offset=-0.5, nonnegative=(1,), fixed=(2,))
    x = torch.tensor([1.0, 2.0])
    out = torch.empty(2)
    vary(0, x, out, variant)
    assert out.tolist() == [-2.5, -4.5]
    vary(1, x, out, variant)
    assert out.tolist() == [2.5, 4.5]
    vary(2, x, out, variant)
    assert out.tolist() == [1.0, 2.0]
    whole = torch.tensor([3, 4])
    copy = torch.empty_like(whole)
    vary(3, whole, copy, variant)
    assert copy.tolist() == [3, 4]
