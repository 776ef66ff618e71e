"""What each technique of fusion is worth: models compiled with none of them, and with one more at a time.

`python -m bench.ablation` times the forms of a model beside each other (`steps`) and writes a table (`report`).
"""
