"""Queen: from a silent chess expert and a language model to one model that plays and explains."""

__version__ = "0.1.0"
