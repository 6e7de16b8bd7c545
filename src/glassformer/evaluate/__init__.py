"""How good written text is: measures with intervals, and two systems compared."""
