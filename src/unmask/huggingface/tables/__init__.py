"""The names that the parameters and fields of each system bear in Hugging Face folders; one module, one system."""
