"""OpenVINOExecutionProvider: subgraphs compiled and run by OpenVINO, where the package `openvino` is installed."""

from sardonyx.providers.openvino.provider import OpenVINOExecutionProvider

__all__ = ["OpenVINOExecutionProvider"]
