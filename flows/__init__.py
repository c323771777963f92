"""When the pipeline runs: Prefect flows over the stages."""
