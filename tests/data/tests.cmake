narrowgauge_test(data/shards cpu narrowgauge_data)
narrowgauge_test(data/order cpu narrowgauge_data)
narrowgauge_test(data/text cpu narrowgauge_data)
