"""The course's figures: charts of recorded measurements (`lab.measure`), and pictures of what programs do.

Matplotlib draws the charts. The pictures are drawn from traces (`lab.trace`), and some can be stepped through.

Every function returns a `Figure`. Text and axes take the page's own font and colour, so that a figure sits as well on a
light page as on a dark one, and equal data give equal bytes on every machine: notebooks with figures can be compared.
"""

from lab.plots.bitmaps import bitmaps
from lab.plots.curves import curves
from lab.plots.errors import error_map
from lab.plots.figure import Figure
from lab.plots.ladder import ladder
from lab.plots.loops import visits
from lab.plots.owners import ownership
from lab.plots.peers import against_peers
from lab.plots.roofline import roofline
from lab.plots.running import running
from lab.plots.speeds import throughput
from lab.plots.standing import standing
from lab.plots.steps import stepper
from lab.plots.tiles import tile_order

__all__ = [
    "Figure",
    "against_peers",
    "bitmaps",
    "curves",
    "error_map",
    "ladder",
    "ownership",
    "roofline",
    "running",
    "standing",
    "stepper",
    "throughput",
    "tile_order",
    "visits",
]
