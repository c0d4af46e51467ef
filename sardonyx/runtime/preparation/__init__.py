"""From a recipe to a plan: loading, expansion, layouts, partition, order, memory, and what is prepared again later."""
