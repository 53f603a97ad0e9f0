narrowgauge_test(config/config cpu narrowgauge_config)
narrowgauge_test(config/errors cpu narrowgauge_config)
# The command line without the commands that need LibTorch.
narrowgauge_test(config/cli cpu narrowgauge_config cxxopts::cxxopts ${CMAKE_DL_LIBS})
target_sources(config_cli PRIVATE "${CMAKE_SOURCE_DIR}/app/cli.cpp" "${CMAKE_SOURCE_DIR}/app/config.cpp"
  "${CMAKE_SOURCE_DIR}/app/crash.cpp" "${CMAKE_SOURCE_DIR}/app/output.cpp")
