"""The flights pipeline in Airflow, on our executor: ``make demo-airflow``."""
