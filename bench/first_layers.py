#!/usr/bin/env python3
"""A model's first layers as a model of their own, to be its draft (layer skipping; Elhoushi et al. 2024): bench/first_layers.py MODEL.gguf N OUT.gguf

Final norm and output matrix are the model's. Standard library only.
"""
import pathlib
import re
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value by its type
STRING, LIST = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def string(self):
        length = self.take("Q")
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == LIST:
            of, count = self.take("IQ")
            if of in SIZES:
                self.at += SIZES[of] * count
            else:
                for _ in range(count):
                    self.skip(of)
        else:
            self.at += SIZES[kind]


def main():
    source, layers, out = pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    data = bytearray(source.read_bytes())
    reader = Reader(data)
    magic, version, tensors, pairs = reader.take("4sIQQ")
    if magic != b"GGUF":
        sys.exit(f"{source} is no GGUF file")
    alignment = 32
    for _ in range(pairs):
        name, kind = reader.string(), reader.take("I")
        if name.endswith(b".block_count"):
            struct.pack_into("<I", data, reader.at, layers)
        if name == b"general.alignment":
            alignment = struct.unpack_from("<I", data, reader.at)[0]
        reader.skip(kind)
    described = data[24 : reader.at]
    listed = []  # (name, what stands between it and its offset, its offset)
    for _ in range(tensors):
        name, start = reader.string(), reader.at
        dimensions = reader.take("I")
        reader.at += 8 * dimensions + 4
        listed.append((name, bytes(data[start : reader.at]), reader.take("Q")))
    begin = -(-reader.at // alignment) * alignment
    ends = dict(zip(sorted(each[2] for each in listed), [*sorted(each[2] for each in listed)[1:], len(data) - begin]))
    kept = [each for each in listed if not (found := re.match(rb"blk\.(\d+)\.", each[0])) or int(found[1]) < layers]
    infos, offset = bytearray(), 0
    for name, info, at in kept:
        infos += struct.pack("<Q", len(name)) + name + info + struct.pack("<Q", offset)
        offset += ends[at] - at
    head = struct.pack("<4sIQQ", magic, version, len(kept), pairs) + described + infos
    with open(out, "wb") as file:
        file.write(head + bytes(-len(head) % alignment))
        for _, _, at in kept:
            file.write(data[begin + at : begin + ends[at]])


if __name__ == "__main__":
    main()
