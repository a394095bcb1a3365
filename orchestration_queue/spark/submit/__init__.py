"""Applications handed to ``spark-submit``: whole programs, with options and a driver of their own."""
