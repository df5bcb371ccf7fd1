"""Quantized communication: the types in which outputs and gradients travel, TorchRec's ``qcomm``.

References
----------
torchrec 1.9.2, distributed/fbgemm_qcomm_codec.py; fbgemm_gpu 1.8.0, quantize_comm.py and
quantize_utils.py.

"""

from costmodel.domain.workload import DataType, Workload

_CLAMPED = {DataType.FP16, DataType.BF16}
_SCALE_BYTES, _SCALED_ELEMENTS = 8.0, 32.0


def wire_type(workload: Workload, *, summed: bool, backward: bool) -> DataType | None:
    """Return the type that a collective's elements are converted to; None: they are not.

    ``summed`` is whether outputs are added up on the way, or their gradients gathered. FP8 is then
    replaced, by FP16 forward and BF16 backward (fbgemm_qcomm_codec.py 227-237). FP32 converts
    nothing (quantize_comm.py 79-80, 128-130).
    """
    asked = workload.comms_backward if backward else workload.comms_forward
    if asked is DataType.FP32:
        return None
    if asked is DataType.FP8 and summed:
        return DataType.BF16 if backward else DataType.FP16
    return asked


def is_clamped(codec: DataType | None) -> bool:
    """Return whether a codec clamps to the type's range before it casts.

    By a kernel of its own, which reads and writes the whole tensor (quantize_utils.py 212-217).
    """
    return codec in _CLAMPED


def wire_element_bytes(codec: DataType) -> float:
    """Return the bytes on the wire of one element.

    INT8 sends 8 bytes of scale and offset with every 32 elements (quantize_comm.py 45, 238-252).
    """
    scales = _SCALE_BYTES / _SCALED_ELEMENTS if codec is DataType.INT8 else 0.0
    return codec.num_bytes + scales
