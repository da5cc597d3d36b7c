package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// endCommands returns the commands that put dead tasks away, or take them back.
func (t deadCommands) endCommands() []*cli.Command {
	command := func(action store.Action, usage, description string, from ...holdfast.State) *cli.Command {
		flags := []cli.Flag{outputFlag(), &cli.BoolFlag{Name: "dry-run", Usage: "change nothing; only print what would be done"}}
		if action == store.ActionPurge {
			flags = append(flags, yesFlag())
		}
		return &cli.Command{
			Name: string(action), Usage: usage, ArgsUsage: "ID...",
			Description: description + `
The audit log has each change. The exit code is 5 if the command succeeded for some of the tasks only.

Example:
  holdfast dead ` + string(action) + ` 42`,
			Flags:  append(flags, actorFlags()...),
			Action: t.do(func(ctx context.Context, c *cli.Context) error { return t.end(ctx, c, action, from...) }),
		}
	}
	return []*cli.Command{
		command(store.ActionArchive, "put dead tasks away, for as long as janitor.keep_archived says",
			`An archived task leaves its group and is in no list of dead tasks. "dead restore" and "task undo" take it back.`,
			holdfast.Dead),
		command(store.ActionRestore, "make archived tasks dead again",
			`The tasks are in their groups after at most a minute. A restored task counts as a death at that time, so its group
returns if it was resolved before.`,
			holdfast.Archived),
		command(store.ActionPurge, "delete dead or archived tasks for good",
			`The audit log keeps the last state and error of each task, but not its payload. On a terminal the command asks
for confirmation; elsewhere it needs --yes.`,
			holdfast.Dead, holdfast.Archived),
	}
}

// end does the action for each of the tasks, if its state is one of from.
func (t deadCommands) end(ctx context.Context, c *cli.Context, action store.Action, from ...holdfast.State) error {
	ids, err := taskIDs(c)
	if err != nil {
		return err
	}
	by, err := t.actor(c)
	if err != nil {
		return err
	}
	dry := c.Bool("dry-run")
	if action == store.ActionPurge && !dry {
		if err := t.confirm(c, "delete "+plural(len(ids), "task")+" for good"); err != nil {
			return err
		}
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		return each(t.tool, c, ids, func(id holdfast.TaskID) (surface.TaskState, error) {
			task, err := b.Store.Task(ctx, id)
			if err == nil && !slices.Contains(from, task.State) {
				err = fmt.Errorf("%w: cannot %s task %s: its state is %s, not %s", holdfast.ErrConflict, action, id, task.State, from[0])
			}
			if err == nil && !dry {
				task, err = b.Act(ctx, by, id, action)
			}
			return surface.TaskState{ID: task.ID, State: task.State}, err
		})
	})
}
