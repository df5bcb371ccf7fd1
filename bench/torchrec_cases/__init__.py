"""What benches of TorchRec scripts share."""
