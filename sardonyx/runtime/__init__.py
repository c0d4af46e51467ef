"""Sessions: the API's classes, how a model is prepared, how it runs, how it is saved."""
