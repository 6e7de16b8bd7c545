"""Where another implementation differs from the paper's machine, and why."""

from glassformer.verification.compare import verify
from glassformer.verification.report import Cause, Report

__all__ = ["Cause", "Report", "verify"]
