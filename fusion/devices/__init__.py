"""One model over several devices of this machine: what they are, where the model is cut, and what runs the parts."""
