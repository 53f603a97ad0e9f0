narrowgauge_test(io/safetensors cpu narrowgauge_io)
narrowgauge_test(io/hugging_face cpu narrowgauge_io)
narrowgauge_test(io/golden_test cpu narrowgauge_io narrowgauge_test_golden)
