package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// noun returns a command with subcommands. names has its name and its aliases.
func noun(names, usage string, verbs ...*cli.Command) *cli.Command {
	words := strings.Fields(names)
	return &cli.Command{Name: words[0], Aliases: words[1:], Usage: usage, Subcommands: verbs}
}

// verb returns a command. use has its name and its arguments, such as "get ID"; see checkArguments. verb inserts the
// flags of the action after the first list of flags.
func (t *tool) verb(use, usage, description string, act action, flags ...[]cli.Flag) *cli.Command {
	name, arguments, _ := strings.Cut(use, " ")
	all := slices.Concat(slices.Insert(flags, min(1, len(flags)), act.flags)...)
	return &cli.Command{Name: name, ArgsUsage: arguments, Usage: usage, Description: description, Flags: all, Action: t.do(act.run)}
}

// finish sets the properties that all commands share, and gives each command "list" the alias "ls".
func finish(commands []*cli.Command) {
	for _, command := range commands {
		command.HideHelp, command.OnUsageError = true, badFlag
		if command.Name == "list" {
			command.Aliases = append(command.Aliases, "ls")
		}
		finish(command.Subcommands)
	}
}

// action is what a command does, with the flags of its request.
type action struct {
	run   func(context.Context, *cli.Context) error
	flags []cli.Flag
}

// plain returns an action that has no request, or reads its flags itself.
func plain(run func(context.Context, *cli.Context) error) action { return action{run: run} }

// reads returns an action that reads a request, opens a backend and calls read.
func reads[R any](t *tool, open opener, read func(context.Context, *cli.Context, *app.Backend, R) error) action {
	return action{flags: requestFlags[R](), run: func(ctx context.Context, c *cli.Context) error {
		var r R
		if err := readRequest(c, &r); err != nil {
			return err
		}
		return t.withBackend(ctx, c, open, func(b *app.Backend) error { return read(ctx, c, b, r) })
	}}
}

// changes is like reads, for a command that changes something for a person.
func changes[R any](t *tool, open opener, change func(context.Context, *cli.Context, *app.Backend, store.Actor, R) error) action {
	flags := requestFlags[R]()
	if find(flags, "reason") != nil {
		flags = append(flags, asFlag()...)
	} else {
		flags = append(flags, actorFlags()...)
	}
	return action{flags: flags, run: func(ctx context.Context, c *cli.Context) error {
		var r R
		if err := readRequest(c, &r); err != nil {
			return err
		}
		by, err := t.actor(c)
		if err != nil {
			return err
		}
		return t.withBackend(ctx, c, open, func(b *app.Backend) error { return change(ctx, c, b, by, r) })
	}}
}

// do converts a function to an action of the library. The action checks the number of arguments and the value of -o,
// and then calls run. The first Ctrl-C cancels the context of run, and the second one kills the process.
func (t *tool) do(run func(context.Context, *cli.Context) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := checkArguments(c); err != nil {
			return err
		}
		if _, err := format(c); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		if c.Bool("watch") {
			return t.watch(ctx, commandName(c), func() error { return run(ctx, c) })
		}
		err := run(ctx, c)
		if err != nil && ctx.Err() != nil && exitCode(err) != exitInterrupted {
			return errInterrupted
		}
		return aboutFlag(c, err)
	}
}

// aboutFlag returns the error of a command. If it is about a member of a request that has a flag, the text names the flag.
func aboutFlag(c *cli.Context, err error) error {
	about, ok := errors.AsType[*surface.MemberError](err)
	if !ok {
		return err
	}
	renamed := surface.MemberError{Name: strings.ReplaceAll(about.Name, "_", "-"), Err: about.Err}
	if find(c.Command.Flags, renamed.Name) == nil {
		return err
	}
	return usageOf(commandName(c), "--%w", &renamed)
}

// checkArguments compares the number of arguments with ArgsUsage, which has one of the forms "", "ID", "ID...",
// "[ID...]" and "GROUP TEXT".
func checkArguments(c *cli.Context) error {
	want, got, name := c.Command.ArgsUsage, c.NArg(), strings.TrimPrefix(commandName(c), "holdfast ")
	many, optional, words := strings.Contains(want, "..."), strings.HasPrefix(want, "["), len(strings.Fields(want))
	switch {
	case want == "" && got > 0:
		return usageOf(commandName(c), "%s takes no argument, but got %q", name, c.Args().First())
	case want != "" && !optional && got == 0:
		return usageOf(commandName(c), "%s needs an argument: %s", name, want)
	case words > 1 && got != words:
		return usageOf(commandName(c), "%s takes %d arguments, but got %d: %s", name, words, got, want)
	case words == 1 && !many && got > 1:
		return usageOf(commandName(c), "%s takes one argument, but got %d", name, got)
	}
	return nil
}

// commandName returns the full name of the command, such as "holdfast task list".
func commandName(c *cli.Context) string {
	var names []string
	for _, level := range c.Lineage() {
		if level.Command != nil && level.Command.Name != "" {
			names = append([]string{level.Command.Name}, names...)
		}
	}
	if len(names) == 0 || names[0] != "holdfast" {
		names = append([]string{"holdfast"}, names...)
	}
	return strings.Join(names, " ")
}
