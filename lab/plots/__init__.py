"""The course's figures, drawn as SVG from traces (`lab.trace`) and recorded measurements (`lab.measure`).

Every function returns a `Figure`. Text and axes take the page's own font and colour, so that a figure sits as well on a
light page as on a dark one, and equal data give equal bytes on every machine: notebooks with figures can be compared.
"""

from lab.plots.addresses import access_map
from lab.plots.bitmaps import bitmaps
from lab.plots.charts import ladder, roofline, throughput
from lab.plots.curves import curves
from lab.plots.errors import error_map
from lab.plots.figure import Figure
from lab.plots.loops import running, visits
from lab.plots.owners import ownership
from lab.plots.steps import stepper
from lab.plots.tiles import tile_order

__all__ = [
    "Figure",
    "access_map",
    "bitmaps",
    "curves",
    "error_map",
    "ladder",
    "ownership",
    "roofline",
    "running",
    "stepper",
    "throughput",
    "tile_order",
    "visits",
]
