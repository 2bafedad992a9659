# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`Conv`: convolution over one, two or three axes."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from framework.errors import ModuleError
from framework.module.base import Module
from framework.module.fields import Param
from framework.nn.initializers import Initializer, lecun_normal, zeros
from framework.nn.shapes import promote, require_features, shown
from framework.random.rngs import Rngs

_LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}

Padding = str | int | Sequence[int | tuple[int, int]]


class Conv(Module):
    """Convolves the axes between the batch and the channels, which are last.

    The weight has the shape `[*kernel_size, in_channels // groups, out_channels]`.

    Args:
        in_channels: number of channels of the input.
        out_channels: number of channels of the output.
        kernel_size: size of the kernel along each convolved axis; its length is the number of these axes (1 to 3).
        strides: step along each axis, or one for all.
        padding: `"SAME"`, `"VALID"`, or a number of zeros on both sides; for each axis such a number, or one for before
            and one for after.
        dilation: distance between kernel elements along each axis, or one for all.
        groups: number of groups of channels that are convolved apart.
        use_bias: whether to add a bias.
        dtype: dtype of the computation; None for what input and parameters have in common.
        param_dtype: dtype of the parameters.
        weight_init: initialiser of the weight, from `jax.nn.initializers`.
        bias_init: initialiser of the bias.
        rngs: the stream `params` gives the weights.

    Raises:
        ModuleError: if sizes do not fit each other.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.nn.Conv(1, 4, (3, 3), strides=2, rngs=fw.Rngs(0))(jnp.ones((5, 8, 8, 1))).shape
        (5, 4, 4, 4)
    """

    weight: Param[Float[Array, "*kernel in_channels_per_group out_channels"]]
    bias: Param[Float[Array, " out_channels"] | None]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sequence[int],
        *,
        strides: int | Sequence[int] = 1,
        padding: Padding = "SAME",
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        weight_init: Initializer = lecun_normal,
        bias_init: Initializer = zeros,
        rngs: Rngs,
    ) -> None:
        if isinstance(kernel_size, int) or len(kernel_size) not in _LAYOUTS:
            raise ModuleError(
                f"Conv was given kernel_size={kernel_size!r}, and needs one number for each of the 1 to 3 axes that it "
                f"convolves: `kernel_size=(3,)` for sequences, `kernel_size=(3, 3)` for images."
            )
        if in_channels % groups or out_channels % groups:
            raise ModuleError(
                f"Conv cannot split {in_channels} input and {out_channels} output channels into groups={groups}; "
                f"choose a number that divides both."
            )
        axes = len(kernel_size)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = tuple(kernel_size)
        self.strides = _for_each_axis("strides", strides, axes)
        self.dilation = _for_each_axis("dilation", dilation, axes)
        self.padding = _padding(padding, axes)
        self.dtype = dtype
        shape = (*self.kernel_size, in_channels // groups, out_channels)
        self.weight = weight_init(rngs.params(), shape, param_dtype)
        self.bias = bias_init(rngs.params(), (out_channels,), param_dtype) if use_bias else None

    def __call__(self, x: Float[Array, " batch *axes in_channels"]) -> Float[Array, " batch *out_axes out_channels"]:
        """Returns the convolved array, of shape `[batch, ..., out_channels]`.

        Args:
            x: array of shape `[batch, ..., in_channels]` with 1 to 3 axes in the middle, as many as the kernel has.

        Raises:
            ModuleError: if the number of axes or of channels is another one.
        """
        if x.ndim != len(self.kernel_size) + 2:
            raise ModuleError(
                f"Conv with kernel_size={self.kernel_size} takes {len(self.kernel_size) + 2} axes (batch, "
                f"{len(self.kernel_size)} to convolve, channels), and was given {shown(x)}. Add the missing axis, as "
                f"in `x[None]` for the batch or `x[..., None]` for the channels."
            )
        require_features(self, x, self.in_channels, "[batch, ..., in_channels]")
        with jax.named_scope("Conv"):
            x, weight, bias = promote(self.dtype, x, self.weight, self.bias)
            y = jax.lax.conv_general_dilated(
                x,
                weight,
                self.strides,
                self.padding,
                rhs_dilation=self.dilation,
                dimension_numbers=_LAYOUTS[len(self.kernel_size)],
                feature_group_count=self.groups,
            )
            return y if bias is None else y + bias


def _for_each_axis(name: str, value: int | Sequence[int], axes: int) -> tuple[int, ...]:
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(values) != axes:
        raise ModuleError(f"Conv was given {name}={value!r} for {axes} axes; give one number, or one for each axis.")
    return values


def _padding(padding: Padding, axes: int) -> str | tuple[tuple[int, int], ...]:
    if isinstance(padding, str):
        if padding.upper() in ("SAME", "VALID"):
            return padding.upper()
        values = ()
    else:
        values = (padding,) * axes if isinstance(padding, int) else tuple(padding)
    if len(values) != axes:
        raise ModuleError(
            f"Conv was given padding={padding!r} for {axes} axes; give 'SAME', 'VALID', one number, or for each axis a "
            f"number or a pair of numbers, as in `padding={((1, 1),) * axes}`."
        )
    return tuple((value, value) if isinstance(value, int) else (value[0], value[1]) for value in values)
