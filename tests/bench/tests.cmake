narrowgauge_test(bench/bench_test cpu narrowgauge_bench)
narrowgauge_test(bench/tune_test cpu narrowgauge_bench)
narrowgauge_test(bench/card_rates_test cpu narrowgauge_bench)
narrowgauge_test(bench/bench_gpu_test gpu narrowgauge_bench)
