/* Commands: the subcommands of the program. Each gets its own arguments (argv[0] is its name) and returns an
   exit code (options.h). To add one: a file, a line here and a line in main.c's table. */
#ifndef MO_CLI_COMMANDS_H
#define MO_CLI_COMMANDS_H

/* Help of --dir. */
#define CLI_DIR_HELP                                                                                         \
    "directory of models (default: MORAINE_MODELS, or moraine/models in XDG_DATA_HOME or ~/.local/share)"

int cli_plan(int argc, char **argv);
int cli_probe(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_replay(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_chat(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_list(int argc, char **argv);
int cli_machine(int argc, char **argv);
int cli_pull(int argc, char **argv);
int cli_quantize(int argc, char **argv);
int cli_rm(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_ps(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_show(int argc, char **argv);
int cli_stop(int argc, char **argv);
int cli_synth(int argc, char **argv);
int cli_template(int argc, char **argv);
int cli_tokenize(int argc, char **argv);

#endif
