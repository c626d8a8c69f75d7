"""What people without Ringlet write to use an export: the first lines of each library's manual, nothing else.

``python strangers.py FOLDER`` opens the exports in a folder and saves what they give for ``images.npy``.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
import torch

folder = Path(sys.argv[1])
images = np.load(folder / "images.npy")
found = {}

core = openvino.Core()
found["openvino"] = core.compile_model(folder / "net.xml", "CPU")(images)[0]
found["openvino f32"] = core.compile_model(folder / "net.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(images)[0]

session = onnxruntime.InferenceSession(folder / "net.onnx")
found["onnx"] = session.run(None, {session.get_inputs()[0].name: images})[0]

found["torch"] = runpy.run_path(str(folder / "net.py"))["load"]()(torch.from_numpy(images)).numpy()

assert "ringlet" not in sys.modules
np.savez(folder / "outputs.npz", **found)
sys.stdout.write(core.read_model(folder / "net.xml").get_rt_info(["ringlet", "precision"]).astype(str))
