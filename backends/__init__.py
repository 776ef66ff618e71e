"""How a group becomes code: one folder per backend."""
