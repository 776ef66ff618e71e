"""RNN, GRU and LSTM over a whole sequence."""
