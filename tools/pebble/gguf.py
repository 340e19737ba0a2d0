"""Writes GGUF version 3 files: metadata, then tensors in F32 or BF16, alignment 32.

Promises: keys and tensors keep the order they are given in; a BF16 tensor is rounded to nearest, ties to even; the
file appears under its name only when it is whole. Arrays are numpy's, row-major: the last axis is GGUF's first.
"""

import struct
from pathlib import Path

import numpy as np

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
TENSOR_F32, TENSOR_BF16 = 0, 30
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
