"""Runs regions as TVM itself compiles them: Relax's own lowering and schedules, as a baseline, and for what nobody
else takes."""
