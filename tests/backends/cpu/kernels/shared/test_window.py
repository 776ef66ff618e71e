"""The padding at the end of windows is the same at all sizes of their images."""

from __future__ import annotations

from itertools import product

from backends.cpu.kernels.shared.window import Window, fitted_window


def test_ceil_mode_has_one_padding_at_all_sizes() -> None:
    """As ONNX says: no window begins behind the image and its padding before it."""
    for taps, stride, apart in product((1, 2, 3), (1, 2, 3, 4), (1, 2)):
        for before, behind in product(range(taps), repeat=2):
            window = Window((taps, taps), (stride, stride), (before, before, behind, behind), (apart, apart))
            span, found = (taps - 1) * apart + 1, set[Window]()
            for size in range(max(1, span - before - behind), 20):
                rows = -((span - before - behind - size) // stride) + 1
                rows -= (rows - 1) * stride >= size + before
                fitted = fitted_window(window, (size, size), (rows, rows), True)
                assert fitted.output(size, size) == (rows, rows)
                found.add(fitted)
            assert len(found) == 1, window
