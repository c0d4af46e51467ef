"""Parts of bodies in a picture (a YOLO of 320 × 320), and what the model itself says of noise."""

import json

import cv2
import numpy as np
from nudenet import NudeDetector

rng = np.random.default_rng(0)
picture = cv2.GaussianBlur(rng.integers(0, 255, (480, 640, 3), dtype=np.uint8), (31, 31), 0)
detector = NudeDetector()
(boxes,) = detector.onnx_session.run(None, {detector.input_name: rng.random((1, 3, 320, 320), dtype=np.float32)})
print(json.dumps([detector.detect(picture), boxes.ravel()[::500].tolist()]))
