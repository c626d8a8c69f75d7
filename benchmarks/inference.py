"""Speed of inference: PyTorch eager, ONNX Runtime, the native engine and OpenVINO exports (FP32, FP16, INT8).

    python -m benchmarks.inference [--threads 1] [--networks unet,simplecnn,unet@512] [--batch-size 8]

All compute the same network with the same weights. PyTorch runs in inference mode, as it is and with the layout that
suits it best (channels last), and is handed normalised floats; the others are handed bytes, as pictures are, and
normalise them themselves. "times eager" compares with PyTorch as it is, "times its best" with the faster of its two
layouts, "times OpenVINO" with the FP32 export. Before timing, all must give the same outputs (INT8: nearly).

All but the named ones compute in float32: OpenVINO is told so (INFERENCE_PRECISION_HINT), as in ``ringlet predict`` and
databases. "OpenVINO default" is the same export as OpenVINO runs it by itself, which is in bfloat16 on processors that
have it. unet@512 and resnet50@224 are networks of published size, one image at a time.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import parser, print_machine, report, use_threads
from ringlet.bench.timing import Variant, take_turns
from ringlet.data.normalization import BYTES
from ringlet.export import onnx, openvino
from ringlet.export.exporter import quantize
from ringlet.export.network import fold
from ringlet.inference import Artifact
from ringlet.inference.description import WEIGHTS, describe
from ringlet.models import zoo
from ringlet.models.files import save_model
from ringlet.models.initializers import initial_values
from ringlet.models.spec import ModelSpec

COLUMNS = (
    "network",
    "batch",
    "by",
    "ms",
    "images/s",
    "times eager",
    "times its best",
    "times OpenVINO",
    "largest difference",
)
OPENVINO = "OpenVINO FP32"
PLAIN, CHANNELS_LAST = "PyTorch eager", "PyTorch eager, channels last"
NETWORKS: dict[str, tuple[Callable[[], ModelSpec], int]] = {
    "unet": (lambda: zoo.create("unet", input_shape=(3, 128, 128), width=8, levels=4), 8),
    "simplecnn": (lambda: zoo.create("simplecnn"), 32),
    "resnet18": (lambda: zoo.create("resnet18", input_shape=(3, 32, 32), num_classes=10), 32),
    "unet@512": (lambda: zoo.create("unet", input_shape=(3, 512, 512)), 1),
    "resnet50@224": (lambda: zoo.create("resnet50"), 1),
}
"""Each with its usual batch."""
DEFAULT_PRECISION = "OpenVINO default"
LIMITS = {"OpenVINO FP16": 0.05, "OpenVINO INT8": 1.0, DEFAULT_PRECISION: 0.1}
DEFAULT_LIMIT = 1e-4


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--networks", default=",".join(NETWORKS), help="comma list (default: %(default)s)")
    options.add_argument("--batch-size", type=int, help="images at a time (default: unet 8, published 1, others 32)")
    given = options.parse_args()
    use_threads(given.threads)
    print_machine("openvino", "onnxruntime", threads=given.threads)
    rows: list[tuple[object, ...]] = []
    results: dict[str, Any] = {}
    for name in given.networks.split(","):
        make, usual = NETWORKS[name]
        batch_size = given.batch_size or usual
        with tempfile.TemporaryDirectory() as folder:
            entries, differences = _measure(make(), Path(folder), batch_size, given.threads, given.rounds)
        rows += [_row(name, batch_size, entry, entries, differences[entry.name]) for entry in entries]
        results[f"{name} / {batch_size}"] = [entry.to_dict() for entry in entries]
        times = {entry.name: entry.median for entry in entries}
        print(f"  {name}: native {times[OPENVINO] / times['Ringlet native']:.2f} x OpenVINO FP32", flush=True)
    print()
    report(given, "inference", COLUMNS, rows, num_keys=3, results=results)


def _measure(
    spec: ModelSpec, folder: Path, batch_size: int, num_threads: int, num_rounds: int
) -> tuple[list[Variant], dict[str, float]]:
    values = np.random.default_rng(0).integers(0, 256, (batch_size, *spec.input_shape[1:], spec.input_shape[0]))
    contenders = _contenders(spec, folder, values.astype(np.uint8), num_threads)
    expected = contenders[0].call()
    differences = {entry.name: float(np.abs(entry.call() - expected).max()) for entry in contenders}
    for name, difference in differences.items():
        if difference > LIMITS.get(name, DEFAULT_LIMIT):
            raise SystemExit(f"{spec.name}: {name} differs by {difference:.1e}: not the same network")
    take_turns(contenders, num_rounds)
    return contenders, differences


def _contenders(spec: ModelSpec, folder: Path, values: NDArray[np.uint8], num_threads: int) -> list[Variant]:
    """PyTorch in both layouts, then the artifacts."""
    tensors = {info.name: initial_values(info, 0, "float32") for info in (*spec.parameters, *spec.state)}
    found = [_torch(spec, tensors, values, channels_last=layout) for layout in (False, True)]
    for name, artifact in _artifacts(spec, tensors, folder).items():
        runtime = artifact.open(threads=num_threads, batch_size=len(values))
        found.append(Variant(name, lambda runtime=runtime: runtime.run(values)))
    found.append(_openvino_default(folder / "fp32.xml", values, num_threads))
    return found


def _openvino_default(path: Path, values: NDArray[np.uint8], num_threads: int) -> Variant:
    """The export with the precision that OpenVINO chooses by itself."""
    from openvino import Core

    settings = {"ENABLE_CPU_PINNING": False, "INFERENCE_NUM_THREADS": num_threads, "NUM_STREAMS": 1}
    request = Core().compile_model(str(path), "CPU", settings).create_infer_request()
    return Variant(DEFAULT_PRECISION, lambda: request.infer({0: values}, share_inputs=True)[0])


def _artifacts(spec: ModelSpec, tensors: dict[str, Any], folder: Path) -> dict[str, Artifact]:
    network, description = fold(spec, tensors), describe(spec, BYTES, ())
    save_model(folder / "model.safetensors", spec, tensors, {"normalization": json.dumps(BYTES.to_dict())})
    onnx.save(onnx.build_model(network, description), folder / "model.onnx", description)
    samples = np.random.default_rng(1).integers(0, 256, (64, *description.preprocessing.graph_shape)).astype(np.uint8)
    for weights in WEIGHTS:
        model = openvino.build_model(network, description)
        model = quantize(model, samples, by_name=False) if weights == "int8" else model
        openvino.save(model, folder / f"{weights}.xml", replace(description, weights=weights))
    names = {"ONNX Runtime": "model.onnx", "Ringlet native": "model.safetensors"}
    names |= {f"OpenVINO {weights.upper()}": f"{weights}.xml" for weights in WEIGHTS}
    return {name: Artifact.find(folder / file) for name, file in names.items()}


def _torch(spec: ModelSpec, tensors: dict[str, Any], values: NDArray[np.uint8], *, channels_last: bool) -> Variant:
    import torch

    from benchmarks.torch_models import TorchModel

    network = TorchModel(spec).eval()
    network.load(tensors)
    head = torch.sigmoid if spec.nodes[-1].op == "sigmoid" else lambda x: torch.softmax(x, 1)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = network.to(memory_format=layout)
    inputs = torch.from_numpy(BYTES.apply(np.moveaxis(values, 3, 1))).contiguous(memory_format=layout)

    def run() -> NDArray[Any]:
        with torch.inference_mode():
            outputs: NDArray[Any] = head(network(inputs)).contiguous().numpy()
        return outputs

    return Variant(CHANNELS_LAST if channels_last else PLAIN, run)


def _row(
    network: str, batch_size: int, entry: Variant, entries: Sequence[Variant], difference: float
) -> tuple[object, ...]:
    """The cells of one contender; times are those of PyTorch eager, of its better layout, and of the FP32 export."""
    by_name = {other.name: other.median for other in entries}
    rivals = by_name[PLAIN], min(by_name[PLAIN], by_name[CHANNELS_LAST]), by_name[OPENVINO]
    rate = batch_size / entry.median
    return (
        network,
        batch_size,
        entry.name,
        f"{1000 * entry.median:.2f}",
        f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}",
        *(f"{rival / entry.median:.2f} x" for rival in rivals),
        f"{difference:.0e}",
    )


if __name__ == "__main__":
    main()
