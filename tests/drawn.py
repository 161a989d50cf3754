"""Signatures drawn by hypothesis: any shape, dtype and kind of parameter."""

from __future__ import annotations

import math

from hypothesis import assume
from hypothesis import strategies as st

from kjit.dtypes import DTYPES
from kjit.signature.names import parameter_problem
from kjit.signature.signature import Scalar, Signature, Tensor

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,3}", fullmatch=True).filter(lambda name: parameter_problem(name) is None)


DIMENSIONS = st.one_of(st.sampled_from(["N", "D", "rows"]), st.integers(1, 2**40))


ANY_SHAPES = st.lists(DIMENSIONS, max_size=3).map(tuple) | st.just(("...",))


SHAPES = ANY_SHAPES.filter(lambda shape: math.prod(d for d in shape if isinstance(d, int)) < 2**60)


TENSOR_DTYPES = st.sampled_from(["T", "U", *DTYPES.values()])


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    """Signatures that mean something: the outputs are like inputs, and what has a default comes last."""
    names = iter(draw(st.lists(NAMES, min_size=10, max_size=10, unique=True)))
    inputs = [
        Tensor(
            next(names),
            draw(TENSOR_DTYPES),
            draw(SHAPES),
            mutable=draw(st.booleans()),
            listed=draw(st.sampled_from([False, False, True])),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    scalars = [
        draw(
            st.one_of(
                st.builds(
                    Scalar,
                    st.just(next(names)),
                    st.just("float"),
                    default=st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
                ),
                st.builds(
                    Scalar, st.just(next(names)), st.just("int"), st.booleans(), st.integers(-(2**63), 2**63 - 1)
                ),
                st.builds(Scalar, st.just(next(names)), st.just("bool"), st.booleans(), st.booleans()),
                st.builds(Scalar, st.just(next(names)), st.just("str"), default=st.text("aZ0 [=|.")),
            )
        )
        for _ in range(draw(st.integers(0, 1)))
    ]
    optional = [
        Tensor(next(names), inputs[0].dtype, inputs[0].shape, optional=True) for _ in range(draw(st.integers(0, 1)))
    ]
    like = draw(st.sampled_from(inputs))
    outputs = [Tensor(next(names), like.dtype, like.shape) for _ in range(draw(st.integers(0, 2)))]
    assume(outputs or any(tensor.mutable for tensor in inputs))
    return Signature((*inputs, *scalars, *optional), tuple(outputs))
