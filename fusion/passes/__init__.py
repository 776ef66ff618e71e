"""Rewrites of the Relax module, one file a pass; `fusion/pipeline.py` puts them in order."""
