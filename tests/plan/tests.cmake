narrowgauge_test(plan/cards_test cpu narrowgauge_plan)
