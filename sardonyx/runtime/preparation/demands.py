"""What a session's options demand: that they make sense together, and with what is there. Raw sessions ask before and after the plan.

Providers that were asked for in vain are named in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sardonyx import settings
from sardonyx.errors import Fail, InvalidArgument, ModelRequiresCompilation
from sardonyx.runtime.api import environment, log
from sardonyx.runtime.api.configuration import Configuration
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.prepare import Prepared
from sardonyx.runtime.preparation.providers import CPU_PROVIDER

logger = logging.getLogger("sardonyx.runtime")

BYTE_COUNTS = (settings.CONSTANT_FOLDING_LIMIT, settings.OPTIMIZED_MODEL_EXTERNAL_MIN_SIZE)
"""Settings that are numbers of bytes."""
SHOWN_NODES = 5
"""How many nodes an error names."""
FUSED_DOMAINS = "com.microsoft"
"""How the domains begin in which the optimizer makes ops."""


def check_options(options: SessionOptions) -> None:
    log.check_severity(options.log_severity_level)
    environment.check_thread_options(options)
    config = options._config
    affinities = config.get(settings.THREAD_AFFINITIES)
    for part in affinities.replace(";", ",").replace("-", ",").split(",") if affinities else ():
        if not part.isdecimal():
            raise RuntimeError(f"Processor id must consist of only digits: {part}")
    for key in BYTE_COUNTS:
        config.size(key)
    style = config.get(settings.MINIMAL_BUILD_OPTIMIZATIONS)
    if style not in ("", "save", "apply"):
        raise InvalidArgument(f"Invalid value for {settings.MINIMAL_BUILD_OPTIMIZATIONS}: {style}")
    if style == "save":
        from sardonyx.runtime.saving import files as saving

        if not saving.is_ort_path(options.optimized_model_filepath, config.entries):
            raise InvalidArgument(
                f"{settings.MINIMAL_BUILD_OPTIMIZATIONS} value of 'save' is only valid when saving an ORT format model."
            )


def check_fallback(config: Configuration, providers: Iterable[str]) -> None:
    if config.is_on(settings.DISABLE_CPU_FALLBACK) and CPU_PROVIDER in providers:
        raise InvalidArgument(
            "Conflicting session configuration: explicitly added the CPU EP to the session, but also disabled fallback to the CPU EP "
            "via session configuration options."
        )


def refuse_cpu(prepared: Prepared) -> None:
    is_refused = prepared.recipe.options._config.is_on(settings.DISABLE_CPU_FALLBACK)
    if is_refused and any(step.provider.public_name == CPU_PROVIDER for step in prepared.steps()):
        raise Fail(
            "This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP has been explicitly "
            "disabled by the user."
        )


def refuse_numpy(prepared: Prepared) -> None:
    """Where machine code is required, name what would run in NumPy."""
    if not prepared.recipe.options._config.is_on(settings.REQUIRE_NATIVE):
        return
    left = [step for step in prepared.steps() if step.in_numpy]
    if left:
        reasons = "; ".join(f"{step.node}: {step.reason or 'control flow'}" for step in left[:SHOWN_NODES])
        more = f"; and {len(left) - SHOWN_NODES} more" if len(left) > SHOWN_NODES else ""
        nodes = "node is" if len(left) == 1 else "nodes are"
        raise Fail(f"{len(left)} {nodes} not machine code, which {settings.REQUIRE_NATIVE} asks for. {reasons}{more}")


def refuse_compiling(prepared: Prepared) -> None:
    if prepared.recipe.options._config.is_on(settings.DISABLE_MODEL_COMPILE):
        # the CPU compiles within a session
        others = (step for step in prepared.steps() if step.provider.public_name != CPU_PROVIDER)
        compiled = next((step for step in others if step.compiled), None)
        if compiled is not None:
            raise ModelRequiresCompilation(
                f"{compiled.provider.name} compiles {compiled.node} and {len(compiled.nodes) - 1} more nodes, "
                f"but compiling is switched off by {settings.DISABLE_MODEL_COMPILE}."
            )


def name_idle_providers(prepared: Prepared) -> None:
    """Name providers besides the CPU's that got no node: in a warning where fused ops of the optimizer may be the cause."""
    others = [provider for provider in prepared.recipe.providers if provider.public_name != CPU_PROVIDER]
    if not others:
        return
    busy = {step.provider for step in prepared.steps()}
    nodes = (node for step in prepared.steps() for node in step.nodes)
    fused = sorted({node.op_type for node in nodes if node.domain.startswith(FUSED_DOMAINS)})
    for provider in (provider for provider in others if provider not in busy):
        if fused and not provider.standard_ops_only:
            logger.warning(
                "%s gets no node. The model has ops that the optimizer makes of ONNX's (%s); "
                "a provider with standard_ops_only = True is offered ONNX's own.",
                *(provider.name, ", ".join(fused)),
            )
        else:
            logger.info("%s gets no node.", provider.name)
