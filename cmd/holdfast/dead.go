package main

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// deadCommands implements the command dead and its subcommands.
type deadCommands struct{ *tool }

func (t deadCommands) command() *cli.Command {
	return noun("dead", "list, group, retry, archive and purge dead letters, which are tasks that failed for good", slices.Concat([]*cli.Command{
		t.groupsCommand(),
	}, t.groupCommands(), []*cli.Command{
		t.verb("list", "list dead tasks with their last error, newest first",
			`"task get" shows a task with its attempts. For further pages see "task list".

Example:
  holdfast dead list --type http --error "connection refused" --since 2h`,
			plain(t.list), outputFlag(), filterFlags(), groupFlag(), listFlags()),
		t.changeCommand(store.ActionRetry),
		t.changeCommand(store.ActionArchive),
		t.changeCommand(store.ActionRestore),
		t.changeCommand(store.ActionPurge),
	})...)
}

func (t deadCommands) list(ctx context.Context, c *cli.Context) error {
	f, err := deadFilter(c)
	if err != nil {
		return err
	}
	return listTasks(ctx, t.tool, c, f, "no dead tasks match",
		column[surface.ListedTask]{"failures", func(task surface.ListedTask) string { return failures(task.Task) }},
		column[surface.ListedTask]{"crashes", func(task surface.ListedTask) string { return unlessZero(task.Crashes) }},
		column[surface.ListedTask]{"died", func(task surface.ListedTask) string { return t.stamp(task.FinishedAt) }},
		column[surface.ListedTask]{"error", func(task surface.ListedTask) string { return task.LastError }},
	)
}
