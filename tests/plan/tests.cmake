narrowgauge_test(plan/cards_test cpu narrowgauge_plan)
narrowgauge_test(plan/memory_test cpu narrowgauge_plan)
narrowgauge_test(plan/rates_test cpu narrowgauge_plan)
narrowgauge_test(plan/search_test cpu narrowgauge_plan)
