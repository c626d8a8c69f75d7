"""Prints what of Horovod's names and arguments the alias package does not have, as JSON; run under ``--horovod``."""

import inspect
import json
import sys
import tomllib
from functools import reduce
from importlib import import_module
from pathlib import Path

table = tomllib.loads(Path(__file__).with_name("horovod_signatures.toml").read_text(encoding="utf-8"))
problems = []
for module, functions in table.items():
    found = import_module(f"horovod.{module}")
    for name, arguments in functions.items():
        try:
            function = reduce(getattr, name.split("."), found)
        except AttributeError as error:
            problems.append(str(error))
            continue
        wanted = arguments.split()
        own = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        if own[: len(wanted)] != wanted:
            problems.append(f"horovod.{module}.{name}({', '.join(own)}): expected {', '.join(wanted)}")

# names that programs import although they are private
from horovod.common.util import env, gpu_available, num_rank_is_power_2, split_list  # noqa: E402
from horovod.runner.common.util.env import get_env_rank_and_size  # noqa: E402

facts = {
    "problems": problems,
    "env": get_env_rank_and_size(),
    "parts": split_list([1, 2, 3, 4, 5], 2),
    "powers": [number for number in range(9) if num_rank_is_power_2(number)],
    "gpu": gpu_available("tensorflow"),
}
with env(HOROVOD_RANK="7", NOT_SET=None):
    import os

    facts["within"] = os.environ["HOROVOD_RANK"]

# spellings of Keras 2
import keras  # noqa: E402

optimizer = keras.optimizers.SGD(0.5)
optimizer.lr.assign(0.25)
model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
model.compile(optimizer, "mse", experimental_run_tf_function=False)
facts["keras 2"] = [float(optimizer.learning_rate), optimizer.variables() == optimizer.variables, model.compiled]
model.save(sys.argv[1])
facts["loaded"] = keras.saving.load_model(sys.argv[1]).compiled
sys.stdout.write(json.dumps(facts) + "\n")
