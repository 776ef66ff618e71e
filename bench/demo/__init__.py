"""`python -m bench.demo [IMAGE]`: reads the text in an image with PP-OCRv4, every network compiled by fusion."""
