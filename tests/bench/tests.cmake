narrowgauge_test(bench/bench_test cpu narrowgauge_bench)
