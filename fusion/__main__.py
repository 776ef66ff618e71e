"""`python -m fusion` is the `fusion` command."""

from __future__ import annotations

import sys

from fusion.cli import main

sys.exit(main())
