#include "bindings/cli/command.h"

int main(int argc, char **argv) { return gb_command_main(argc, argv); }
