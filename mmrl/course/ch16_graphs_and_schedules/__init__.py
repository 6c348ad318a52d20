"""Chapter 16: Dependence graphs and schedules."""
