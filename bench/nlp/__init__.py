"""BERT, GPT-2 and XLNet under DistributedDataParallel on two cores, predicted and measured."""
