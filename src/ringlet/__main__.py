"""``python -m ringlet`` is ``ringlet``."""

from __future__ import annotations

import sys

from ringlet.cli.main import main

sys.exit(main())
