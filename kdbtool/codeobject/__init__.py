"""AMDGPU code objects: ELF, offload bundle, metadata note, kernel descriptors.

parse(data) -> CodeObject                              CodeObjectError for any damage
check_object(data, arch, expected_target) -> [Finding]  what verify and rebuild hold a row to
compare.code_identity(obj), compare.kernels(obj)        the code apart from its layout; registers, LDS
"""

from kdbtool.codeobject.check import check_object
from kdbtool.codeobject.model import CodeObject, CodeObjectError, Descriptor, Feature, KernelArg, KernelMeta
from kdbtool.codeobject.parse import parse

__all__ = [
    "CodeObject",
    "CodeObjectError",
    "Descriptor",
    "Feature",
    "KernelArg",
    "KernelMeta",
    "check_object",
    "parse",
]
