"""Python runs this at its start where this folder is on PYTHONPATH: programs of tests import frameworks faster.

Keras imports scikit-learn, Matplotlib and, beside another backend, TensorFlow only because they are installed, and does
as well without. Collections of garbage while thousands of modules are imported find none.
"""

import gc
import os
import sys

sys.modules["sklearn"] = None
if backend := os.environ.get("KERAS_BACKEND"):
    sys.modules["matplotlib"] = None
    if backend != "tensorflow":
        sys.modules["tensorflow"] = None
gc.set_threshold(50_000, 20, 20)
