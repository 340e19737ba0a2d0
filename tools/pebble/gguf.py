"""Writes GGUF version 3 files: metadata, then tensors in F32 or BF16, alignment 32; and reads those of pebble.

Promises: keys and tensors keep the order they are given in; a BF16 tensor is rounded to nearest, ties to even; the
file appears under its name only when it is whole. Arrays are numpy's, row-major: the last axis is GGUF's first.
"""

import struct
from pathlib import Path

import numpy as np

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
TENSOR_F32, TENSOR_Q4_0, TENSOR_Q8_0, TENSOR_BF16 = 0, 2, 8, 30
ALIGNMENT = 32


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def to_bf16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 values, rounded to nearest even. Values must be finite."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


class Writer:
    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.keys: dict[str, bytes] = {}
        self.tensors: dict[str, tuple[tuple[int, ...], int, np.ndarray]] = {}

    # ---- Metadata ----

    def _key(self, name: str, kind: int, value: bytes) -> None:
        if name in self.keys:
            raise ValueError(f"the key {name} is given twice")
        self.keys[name] = _string(name) + struct.pack("<i", kind) + value

    def u32(self, name: str, value: int) -> None:
        self._key(name, U32, struct.pack("<I", value))

    def i32(self, name: str, value: int) -> None:
        self._key(name, I32, struct.pack("<i", value))

    def u64(self, name: str, value: int) -> None:
        self._key(name, U64, struct.pack("<Q", value))

    def f32(self, name: str, value: float) -> None:
        self._key(name, F32, struct.pack("<f", value))

    def boolean(self, name: str, value: bool) -> None:
        self._key(name, BOOL, struct.pack("<B", value))

    def string(self, name: str, value: str) -> None:
        self._key(name, STRING, _string(value))

    def strings(self, name: str, values: list[str]) -> None:
        self._key(name, ARRAY, struct.pack("<iQ", STRING, len(values)) + b"".join(map(_string, values)))

    def i32s(self, name: str, values: list[int]) -> None:
        self._key(name, ARRAY, struct.pack("<iQ", I32, len(values)) + np.asarray(values, "<i4").tobytes())

    def f32s(self, name: str, values: list[float]) -> None:
        self._key(name, ARRAY, struct.pack("<iQ", F32, len(values)) + np.asarray(values, "<f4").tobytes())

    # ---- Tensors ----

    def _tensor(self, name: str, kind: int, array: np.ndarray) -> None:
        if name in self.tensors or len(name.encode()) >= 64 or not 1 <= array.ndim <= 4:
            raise ValueError(f"the tensor {name} is given twice, or its name or shape does not fit GGUF")
        self.tensors[name] = (array.shape[::-1], kind, array)

    def f32_tensor(self, name: str, array: np.ndarray) -> None:
        self._tensor(name, TENSOR_F32, np.asarray(array))

    def bf16(self, name: str, array: np.ndarray) -> None:
        self._tensor(name, TENSOR_BF16, np.asarray(array))

    # ---- The file ----

    def _infos(self) -> bytes:
        out, offset = [], 0
        for name, (shape, kind, array) in self.tensors.items():
            out.append(_string(name) + struct.pack(f"<I{len(shape)}qiQ", len(shape), *shape, kind, offset))
            offset += -(-array.size * (4 if kind == TENSOR_F32 else 2) // ALIGNMENT) * ALIGNMENT
        return b"".join(out)

    def close(self) -> None:
        """Writes everything; arrays are converted one at a time."""
        part = self.path.with_name(self.path.name + ".part")
        with part.open("wb") as file:
            file.write(b"GGUF" + struct.pack("<Iqq", 3, len(self.tensors), len(self.keys)))
            file.write(b"".join(self.keys.values()) + self._infos())
            for _, kind, array in self.tensors.values():
                file.write(bytes(-file.tell() % ALIGNMENT))
                file.write((to_bf16(array) if kind == TENSOR_BF16 else np.ascontiguousarray(array, "<f4")).data)
            file.write(bytes(-file.tell() % ALIGNMENT))
        part.rename(self.path)


# ---- Reading ----

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", 11: "q", 12: "d"}
BLOCK = 32
BYTES = {TENSOR_F32: 4 * BLOCK, TENSOR_BF16: 2 * BLOCK, TENSOR_Q4_0: 2 + BLOCK // 2, TENSOR_Q8_0: 2 + BLOCK}


def _decoded(raw: np.ndarray, kind: int) -> np.ndarray:
    """The values of bytes, as float32."""
    if kind == TENSOR_F32:
        return raw.view("<f4")
    if kind == TENSOR_BF16:
        return (raw.view("<u2").astype("<u4") << 16).view("<f4")
    blocks = raw.reshape(-1, BYTES[kind])
    scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype("<f4")
    if kind == TENSOR_Q8_0:
        return np.ascontiguousarray(blocks[:, 2:]).view("i1").astype("<f4") * scale
    codes = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)  # the second half of a block is above the first
    return (codes.astype("<f4") - 8.0) * scale


class Reader:
    """A file in the formats of pebble. keys: its metadata; tensor(name): its values, row-major."""

    def __init__(self, path: Path | str):
        self.data = Path(path).read_bytes()
        self.at = 0
        magic, version, tensors, keys = self._take("4sIQQ")
        if magic != b"GGUF" or version != 3:
            raise ValueError(f"{path} is no GGUF file of version 3")
        self.keys = {}
        for _ in range(keys):
            name = self._text()
            self.keys[name] = self._value(*self._take("i"))
        self.tensors = {}
        for _ in range(tensors):
            name = self._text()
            (dimensions,) = self._take("I")
            shape = self._take(f"{dimensions}q")
            kind, offset = self._take("iQ")
            self.tensors[name] = (shape[::-1], kind, offset)
        self.begin = -(-self.at // ALIGNMENT) * ALIGNMENT

    def _take(self, form: str) -> tuple:
        out = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return out

    def _text(self) -> str:
        (size,) = self._take("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def _value(self, kind: int):
        if kind == STRING:
            return self._text()
        if kind != ARRAY:
            return self._take(SCALARS[kind])[0]
        of, count = self._take("iQ")
        return [self._text() for _ in range(count)] if of == STRING else list(self._take(f"{count}{SCALARS[of]}"))

    def tensor(self, name: str) -> np.ndarray:
        shape, kind, offset = self.tensors[name]
        if kind not in BYTES:
            raise ValueError(f"the tensor {name} has a format that only the program reads: name pebble.gguf or its reference")
        size = 1
        for n in shape:
            size *= n
        begin = self.begin + offset
        raw = np.frombuffer(self.data[begin : begin + size * BYTES[kind] // BLOCK], dtype="u1")
        return _decoded(raw, kind).reshape(shape).copy()
