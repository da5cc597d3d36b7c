// Command holdfast runs and looks after reliable retry work: a daemon that runs
// tasks, and the tools to enqueue them, follow them and mend what went wrong.
//
// Every command writes data to stdout and messages to stderr, and ends with an
// exit code that says what happened; see errors.go. The commands are nouns with
// verbs, one file a noun. The testdata folder shows each of them at work.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// version names this build. The linker of `make build` sets it; see buildVersion for other builds.
var version string

func main() {
	version = buildVersion(version, debug.ReadBuildInfo)
	t := &tool{terminal: terminal{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: os.Environ()}}
	os.Exit(t.run(context.Background(), os.Args[1:]))
}

// tool is one invocation, with what all commands share: the terminal, the configuration, the store and broker of it,
// errors. Each noun has a type of its own over it, in a file of its own.
type tool struct {
	terminal

	flags map[string]string // the flags that set a key of the configuration, as they were typed
}

// run carries out one command line and returns the exit code.
func (t *tool) run(ctx context.Context, args []string) int {
	program := newProgram(t)
	line, err := arrange(program, args)
	switch {
	case err == nil && line.help:
		err = help(t.stdout, program, line)
	case err == nil:
		err = program.RunContext(ctx, line.args)
	}
	t.report(err)
	return exitCode(err)
}

// newProgram returns the whole command line as a tree.
func newProgram(t *tool) *cli.App {
	program := &cli.App{
		Name:  "holdfast",
		Usage: "a reliable retry worker, in one file or over PostgreSQL and RabbitMQ",
		Description: `A task is stored, announced to the workers, run by one of them and retried until it is done,
or dead and waiting for a person. With nothing configured all of it lives in one process and one
file; DATABASE_URL and AMQP_URL move it to PostgreSQL and RabbitMQ.

Settings come from flags, then the environment, then a YAML file, then defaults;
"holdfast config show" prints each value and where it came from.

Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict, 5 partly done,
6 a server is unreachable, 7 a check failed, 124 wait timed out, 130 interrupted.

Example:
  holdfast demo
  holdfast serve &
  holdfast enqueue --type http --payload '{"url":"https://example.com/hook"}'`,
		Flags:    globalFlags(),
		Commands: commands(t),

		// Flags are sorted and checked, and help is printed, before the library sees them.
		HideHelp:                  true,
		HideVersion:               true,
		DisableSliceFlagSeparator: true,
		OnUsageError:              badFlag,
		Before: func(c *cli.Context) error {
			t.plain = c.Bool("no-color")
			return nil
		},
		ExitErrHandler: func(*cli.Context, error) {},
		Writer:         t.stdout,
		ErrWriter:      t.stderr,
	}
	finish(program.Commands)
	return program
}

// finish sets what every command has in common. Each list is also an ls.
func finish(commands []*cli.Command) {
	for _, command := range commands {
		command.HideHelp, command.OnUsageError = true, badFlag
		if command.Name == "list" {
			command.Aliases = append(command.Aliases, "ls")
		}
		finish(command.Subcommands)
	}
}

// commands lists the commands in the order of the help.
func commands(t *tool) []*cli.Command {
	return []*cli.Command{
		demoCommand{t}.command(),
		serveCommand{t}.command(),
		enqueueCommand{t}.command(),
		taskCommands{t}.command(),
		deadCommands{t}.command(),
		queueCommands{t}.command(),
		workerCommands{t}.command(),
		holdingCommands{t}.command(),
		migrateCommands{t}.command(),
		transferCommands{t}.exportCommand(),
		transferCommands{t}.importCommand(),
		topologyCommands{t}.command(),
		doctorCommand{t}.command(),
		benchCommand{t}.command(),
		configCommands{t}.command(),
		completionCommands{t}.command(),
		completionCommands{t}.candidatesCommand(),
		versionCommand{t}.command(),
	}
}
