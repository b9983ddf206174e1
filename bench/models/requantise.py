#!/usr/bin/env python3
"""The same model in another block type: its matrices from a GGUF file, dequantised and quantised again.

    pip install gguf
    bench/models/requantise.py MODEL.gguf Q8_0|Q4_0|Q4_1|Q5_0 OUT.gguf

For speed beside peers on a type of which no file is at hand: values are as coarse as the coarser of both
types, so that nothing is said about quality. Vectors and all that is no matrix stay as they are."""

import sys

import gguf
import numpy as np


def copy_fields(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)


def main():
    path, type_name, out = sys.argv[1:]
    wanted = gguf.GGMLQuantizationType[type_name]
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, architecture)
    copy_fields(reader, writer)
    made = {}
    for tensor in reader.tensors:
        if len(tensor.shape) < 2:
            writer.add_tensor_info(tensor.name, tensor.data.shape, tensor.data.dtype, tensor.data.nbytes)
            continue
        shape = gguf.quant_shape_to_byte_shape([int(n) for n in reversed(tensor.shape)], wanted)
        made[tensor.name] = True
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.uint8), int(np.prod(shape)), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        data = tensor.data
        if tensor.name in made:
            data = gguf.quants.quantize(gguf.quants.dequantize(data, tensor.tensor_type), wanted)
        writer.write_tensor_data(data)
    writer.close()


if __name__ == "__main__":
    main()
