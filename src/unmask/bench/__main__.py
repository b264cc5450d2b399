"""A turn of a peer, begun as plain Python: `python -m unmask.bench MODULE SIDE SETTINGS RESULT`."""

from __future__ import annotations

import sys

from unmask.bench.common import serve_room

serve_room(sys.argv[1:])
