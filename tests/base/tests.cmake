narrowgauge_test(base/values cpu narrowgauge_base)
narrowgauge_test(base/files cpu narrowgauge_base)
narrowgauge_test(base/child_process cpu narrowgauge_base)
narrowgauge_test(base/staged_folder cpu narrowgauge_base)
