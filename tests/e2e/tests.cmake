# Tests that drive the built program. narrowgauge_e2e_test(NAME KIND): like narrowgauge_test.
function(narrowgauge_e2e_test name kind)
  narrowgauge_test(${name} ${kind} nlohmann_json::nlohmann_json)
  string(REPLACE "/" "_" target "${name}")
  target_sources(${target} PRIVATE e2e/program.cpp e2e/workshop.cpp train/rows.cpp)
  target_compile_definitions(${target} PRIVATE NARROWGAUGE_PROGRAM="$<TARGET_FILE:narrowgauge>")
  add_dependencies(${target} narrowgauge)
endfunction()

narrowgauge_e2e_test(e2e/train cpu)
narrowgauge_e2e_test(e2e/stop cpu)
narrowgauge_e2e_test(e2e/bad_input cpu)
narrowgauge_e2e_test(e2e/plan cpu)
narrowgauge_e2e_test(e2e/tune cpu)
