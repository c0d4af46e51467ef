"""File types by content with magika; run by test_packages.py."""

import io
import json
import wave
import zipfile

from magika import Magika


def zip_file():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("letter.txt"), "Dear reader, " * 40)
    return buffer.getvalue()


def wave_file():
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(range(256)) * 16)
    return buffer.getvalue()


CONTENTS = {
    "python": b"import os\n\n\ndef names(path):\n    return sorted(entry.name for entry in os.scandir(path))\n" * 3,
    "json": json.dumps({"name": "agate", "layers": [{"width": n, "colour": "red"} for n in range(20)]}).encode(),
    "html": b"<!DOCTYPE html><html><head><title>Stones</title></head><body><p>Sardonyx</p></body></html>\n" * 4,
    "c": b'#include <stdio.h>\n\nint main(void) {\n    printf("%d\\n", 42);\n    return 0;\n}\n' * 3,
    "shell": b"#!/bin/sh\nset -e\nfor name in *.txt; do\n    wc -l \"$name\" | cut -d' ' -f1\ndone\n",
    "csv": b"id,name,weight\n" + b"".join(b"%d,stone %d,%d.5\n" % (n, n, n * 3) for n in range(60)),
    "markdown": b"# Stones\n\n- agate\n- onyx\n\n```\nprint(1)\n```\n\nSee [the list](list.md) for *more*.\n" * 5,
    "sql": b"SELECT name, COUNT(*) FROM stones WHERE weight > 3 GROUP BY name ORDER BY 2 DESC;\n" * 4,
    "zip": zip_file(),
    "wave": wave_file(),
}

magika = Magika()
results = {}
for kind, content in CONTENTS.items():
    answer = magika.identify_bytes(content)
    results[kind] = [answer.dl.label, answer.output.label, answer.score]
print(json.dumps(results))
