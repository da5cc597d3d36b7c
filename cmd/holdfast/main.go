// Command holdfast is a reliable retry worker. It contains the daemon that runs tasks, and tools to enqueue, follow,
// retry and cancel tasks.
//
// Every command writes data to stdout and messages to stderr. The exit code reports the result; see errors.go. Most
// commands are a noun with a verb, and each noun has a file of its own. The scripts in testdata show every command in
// use.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/internal/contain"
)

// version is the version of this build. The linker of make build sets it; see buildVersion for other builds.
var version string

func main() {
	version = buildVersion(version, debug.ReadBuildInfo)
	catchBrokenPipes()
	t := &tool{terminal: terminal{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: os.Environ()}}
	os.Exit(t.run(context.Background(), os.Args[1:]))
}

// tool is one invocation of the program. It has the functions that all commands share: for the terminal, the
// configuration, the store, the broker and errors. Each noun has a type that embeds tool, in a file of its own. The
// methods of the type are the commands.
type tool struct {
	terminal

	flags map[string]string // by configuration key: the flag that set it, as typed
	debug bool              // the configured log level is debug
}

// run executes one command line and returns the exit code.
func (t *tool) run(ctx context.Context, args []string) int {
	out := &output{Writer: t.stdout}
	t.stdout = out
	program := newProgram(t)
	line, err := arrange(program, args)
	switch {
	case err == nil && line.help:
		err = help(t.stdout, program, line, t.helpWidth())
	case err == nil:
		err = contain.Call(func() error { return program.RunContext(ctx, line.args) })
	}
	err = out.result(err)
	t.report(err)
	return exitCode(err)
}

// newProgram returns the tree of all commands.
func newProgram(t *tool) *cli.App {
	program := &cli.App{
		Name:  "holdfast",
		Usage: "a reliable retry worker, in one file or over PostgreSQL and RabbitMQ",
		Description: `Holdfast stores each task, publishes it to the workers, and retries it until it is done, or until
it is dead and waits for an operator. Without configuration, one process does everything and keeps its tasks in one
file. With DATABASE_URL and AMQP_URL the tasks are in PostgreSQL and RabbitMQ.

A setting comes from a flag, an environment variable, the YAML file or its default, in this order of precedence.
"holdfast config show" prints each value and its origin.

On a terminal, a table fits the width: it shortens long texts and leaves out less important columns. A pipe, a file and
-o json get everything.

Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict, 5 partial success, 6 server unavailable, 7 check failed,
124 wait timed out, 130 interrupted.

Example:
  holdfast demo
  holdfast serve &
  holdfast enqueue --type http --payload '{"url":"https://example.com/hook"}'`,
		Flags:    globalFlags(),
		Commands: commands(t),

		// arrange sorts and checks the flags, and help prints help, before the library parses the arguments.
		HideHelp:                  true,
		HideVersion:               true,
		DisableSliceFlagSeparator: true,
		OnUsageError:              badFlag,
		Before: func(c *cli.Context) error {
			t.plain = c.Bool("no-color")
			return checkZone(t.variable("TZ"))
		},
		ExitErrHandler: func(*cli.Context, error) {},
		Writer:         t.stdout,
		ErrWriter:      t.stderr,
	}
	finish(program.Commands)
	return program
}

// commands returns the commands in the order of the help, with the headings under which it lists them as categories.
func commands(t *tool) (all []*cli.Command) {
	for _, part := range []struct {
		heading  string
		commands []*cli.Command
	}{
		{"Run", []*cli.Command{
			demoCommand{t}.command(), serveCommand{t}.command(), topCommand{t}.command(), doctorCommand{t}.command(), benchCommand{t}.command(),
		}},
		{"Tasks", []*cli.Command{
			enqueueCommand{t}.command(), taskCommands{t}.command(), deadCommands{t}.command(), operationCommands{t}.command(), auditCommands{t}.command(),
		}},
		{"Flow", []*cli.Command{
			queueCommands{t}.command(), gateCommands{t}.typeCommand(), gateCommands{t}.keyCommand(), gateCommands{t}.targetCommand(),
			gateCommands{t}.command(), limitCommands{t}.command(), topicCommands{t}.command(),
		}},
		{"Shapes of work", []*cli.Command{
			scheduleCommands{t}.command(), batchCommands{t}.command(), sliceCommands{t}.command(), shardCommands{t}.command(),
		}},
		{"Operate", []*cli.Command{
			workerCommands{t}.command(), verifyCommands{t}.command(), recoverCommand{t}.command(), topologyCommands{t}.command(),
			holdingCommands{t}.command(), migrateCommands{t}.command(), transferCommands{t}.exportCommand(), transferCommands{t}.importCommand(),
		}},
		{"Configure", []*cli.Command{
			configCommands{t}.command(), settingCommands{t}.command(), policyCommands{t}.command(), tokenCommands{t}.command(),
			completionCommands{t}.command(), completionCommands{t}.candidatesCommand(), completionCommands{t}.namesCommand(), versionCommand{t}.command(),
		}},
	} {
		for _, command := range part.commands {
			command.Category = part.heading
			all = append(all, command)
		}
	}
	return all
}
