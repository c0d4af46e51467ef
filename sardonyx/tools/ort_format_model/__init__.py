"""What models in the ORT format need."""

from sardonyx.tools.ort_format_model.utils import create_config_from_models

__all__ = ["create_config_from_models"]
