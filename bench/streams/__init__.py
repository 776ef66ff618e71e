"""Streams of shapes, one model each, against other engines with the same model: what calls take whose shapes are new,
and what they take when the stream comes again.

`draw` makes random streams for models of the zoo, `measure` runs one, `report` writes what was found.
`fusion bench MODEL --shapes FILE` runs a stream of the user's own.
"""
