narrowgauge_test(data/stream cpu narrowgauge_data)
narrowgauge_test(data/text cpu narrowgauge_data)
