"""Inputs and outputs bound to memory before a run: SessionIOBinding does it, IOBinding is what `session.io_binding()` returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import CODED
from sardonyx.runtime.api import arguments
from sardonyx.runtime.api.devices import CPU, OrtDevice
from sardonyx.runtime.api.value import OrtValue, OrtValueVector, from_address
from sardonyx.runtime.execution.destinations import Bound, Place, free_places, place_of
from sardonyx.runtime.execution.results import release

if TYPE_CHECKING:
    from sardonyx.runtime.api.options import RunOptions
    from sardonyx.runtime.api.session import Session
    from sardonyx.runtime.execution.engine import Engine


class SessionIOBinding:
    """What is bound for the runs of one prepared model. Outputs without memory get some in the first run and keep it."""

    def __init__(self, engine: Engine):
        from sardonyx.runtime.execution.engine import Engine

        if not isinstance(engine, Engine):
            raise arguments.mismatch("__init__", "SessionIOBinding(session: the `_sess` of an InferenceSession)", engine)
        self._engine = engine
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._owned: set[str] = set()
        """Outputs whose memory is ours, so that they may change their shape."""
        self._read: dict[str, Place] = {}
        self._written: dict[str, Place] = {}
        """Where inputs and outputs lie."""
        self._bound: Bound | None = None
        """What runs may write into; None if it must be looked at again."""
        self._values: dict[str, Any] = {}
        """Inputs as runs take them, where these are the memory that was bound."""

    def bind_input(self, name: str, *positional: Any) -> None:
        """An array, or (device, element type, shape, address) of memory that the caller owns."""
        if len(positional) == 1:
            self._bind_array(name, positional[0])
        elif len(positional) == 4:
            device, element_type, shape, address = positional
            self.bind_ortvalue_input(name, from_address(address, element_type, shape, device))
        else:
            raise arguments.mismatch(
                "bind_input", "(name: str, device: OrtDevice, element_type, shape, address: int)", name, *positional
            )

    def _bind_array(self, name: str, array: Any) -> None:
        if name not in self._engine.inputs:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        if not isinstance(array, np.ndarray):
            raise RuntimeError("Unable to create OrtValue from the given python object")
        self._set_input(name, OrtValue.ortvalue_from_numpy(array))

    def _set_input(self, name: str, value: OrtValue) -> None:
        self._inputs[name] = value
        self._values.pop(name, None)
        ends = self._read.pop(name, None), place_of(value._value)
        if any(place.meets(other) for place in ends if place is not None for other in self._written.values()):
            self._bound = None
        if ends[1] is not None:
            self._read[name] = ends[1]

    def _set_output(self, name: str, value: OrtValue | None) -> None:
        self._outputs[name] = value
        self._bound = None
        place = None if value is None else place_of(value._value)
        self._written.pop(name, None)
        if place is not None:
            self._written[name] = place

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Bind a value; runs read its memory."""
        if name not in self._engine.inputs:
            raise RuntimeError(f"Error when binding input: Failed to find input name in the mapping: {name}")
        self._set_input(name, value._ortvalue)

    def bind_output(self, name: str, device: OrtDevice, *arguments: Any) -> None:
        """Memory for an output: (element type, shape, address) that the caller owns, or none."""
        if device.device_type() != CPU:
            raise RuntimeError(f"Error when binding output: there is no memory of device type {device.device_type()}")
        if arguments:
            element_type, shape, address = arguments
            self.bind_ortvalue_output(name, from_address(address, element_type, shape, device))
        else:
            self._set_output(name, None)
            self._owned.add(name)

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Bind a value into whose memory runs write."""
        self._set_output(name, value._ortvalue)
        self._owned.discard(name)

    def get_outputs(self) -> OrtValueVector:
        """The bound outputs in the order of binding; those that no run has made yet are empty."""
        return OrtValueVector._of([OrtValue._of(None) if value is None else value for value in self._outputs.values()])

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Arrays with the outputs' content, memory of their own."""
        values = [None if value is None else value._value for value in self._outputs.values()]
        return release([np.array(value) if isinstance(value, np.ndarray) else value for value in values])

    def clear_binding_inputs(self) -> None:
        """Forget all bound inputs."""
        self._inputs.clear()
        self._values.clear()
        self._read.clear()
        self._bound = None

    def clear_binding_outputs(self) -> None:
        """Forget all bound outputs."""
        self._outputs.clear()
        self._owned.clear()
        self._written.clear()
        self._bound = None

    def synchronize_inputs(self) -> None:
        """Nothing to wait for on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for on the CPU."""

    def run(self, run_options: RunOptions | None) -> None:
        """Run with what is bound; every failure is a RuntimeError here, as in the original."""
        try:
            self._run(run_options)
        except CODED as error:
            raise RuntimeError(f"Error in execution: {error.message}") from error  # type: ignore[attr-defined]

    def _run(self, run_options: RunOptions | None) -> None:
        if not self._outputs:
            raise RuntimeError("Error in execution: At least one output should be requested.")
        for name in self._outputs:
            if not self._engine.knows(name):
                raise RuntimeError(f"Error in execution: Invalid output name: {name}")
        if self._bound is None:
            self._bound = free_places(self._written, self._read)
        values = self._engine.compute(list(self._outputs), self._converted(), run_options, self._bound)
        for (name, bound), value in zip(list(self._outputs.items()), values, strict=True):
            stored = self._stored(name, bound, value)
            if stored is not bound:
                self._set_output(name, stored)

    def _converted(self) -> dict[str, Any]:
        """The inputs as runs take them. Most are views of what was bound, and remain."""
        values = dict(self._values)
        for name in self._inputs.keys() - values.keys():
            values[name] = value = self._engine.converted(name, self._inputs[name])
            place = self._read.get(name)
            if place is not None and isinstance(value, np.ndarray) and value.ctypes.data == place.start:
                self._values[name] = value
        return values

    def _stored(self, name: str, bound: OrtValue | None, value: Any) -> OrtValue:
        """A result in the memory bound for it."""
        if bound is None or not isinstance(bound._value, np.ndarray) or not isinstance(value, np.ndarray):
            return OrtValue._of(value, self._engine.type_of(name))
        memory = bound._value
        if value is memory:
            return bound
        if memory.shape == value.shape and memory.dtype == value.dtype:
            memory[...] = value
            return bound
        if name in self._owned:
            return OrtValue._of(value)
        raise _misfit(name, memory, value)


def _misfit(name: str, memory: np.ndarray, value: np.ndarray) -> RuntimeError:
    if memory.dtype != value.dtype:
        actual, expected = (dtypes.from_numpy(array.dtype) for array in (memory, value))
        return RuntimeError(
            f"Error in execution: Unexpected output data type. Actual: (tensor({actual})) , expected: (tensor({expected}))"
        )
    bound, computed = (",".join(map(str, array.shape)) for array in (memory, value))
    return RuntimeError(
        f"Error in execution: The output OrtValue provided for output '{name}' has shape {{{bound}}} but the computed output shape "
        f"for this run is {{{computed}}}. Bind memory of that shape, or bind the output without memory."
    )


class IOBinding:
    """Binds inputs and outputs of a session, so that runs neither check nor copy more than they must."""

    def __init__(self, session: Session):
        self._iobinding = SessionIOBinding(session._sess)  # type: ignore[arg-type]  # None is refused there
        self._session = session
        self._numpy_obj_references: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Bind an array; changes of its content are seen by later runs if it is C-contiguous."""
        self._numpy_obj_references[name] = arr_on_cpu
        self._iobinding.bind_input(name, arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind memory by its address. The caller keeps it alive."""
        self._iobinding.bind_input(name, OrtDevice.make(device_type, device_id), element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value; runs read its memory."""
        self._iobinding.bind_ortvalue_input(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output: to memory at an address, or to memory that the first run makes."""
        device = OrtDevice.make(device_type, device_id)
        if buffer_ptr is None:
            self._iobinding.bind_output(name, device)
            return
        if element_type is None or shape is None:
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        self._iobinding.bind_output(name, device, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value into whose memory runs write."""
        self._iobinding.bind_ortvalue_output(name, ortvalue)

    def get_outputs(self) -> list[OrtValue]:
        """The outputs in the order of binding."""
        return list(self._iobinding.get_outputs())

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The outputs in the order of binding, as a vector."""
        return self._iobinding.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs as arrays of their own."""
        return self._iobinding.copy_outputs_to_cpu()

    def clear_binding_inputs(self) -> None:
        """Forget all bound inputs."""
        self._numpy_obj_references.clear()
        self._iobinding.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        """Forget all bound outputs."""
        self._iobinding.clear_binding_outputs()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for on the CPU."""
        self._iobinding.synchronize_inputs()

    def synchronize_outputs(self) -> None:
        """Nothing to wait for on the CPU."""
        self._iobinding.synchronize_outputs()
