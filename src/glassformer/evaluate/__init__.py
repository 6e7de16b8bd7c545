"""How good written text is: measures with intervals, two systems compared, and the evaluation of a run."""

from glassformer.evaluate.metrics import confusion, measure
from glassformer.evaluate.paired import compare
from glassformer.evaluate.report import evaluate

__all__ = ["compare", "confusion", "evaluate", "measure"]
