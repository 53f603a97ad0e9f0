add_test(NAME structure/ranks COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/structure/ranks.sh" "${CMAKE_SOURCE_DIR}")
set_tests_properties(structure/ranks PROPERTIES LABELS cpu)
