"""Chapter 15: Recurrent tensors."""
