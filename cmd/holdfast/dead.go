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

// deadCommands implements the command dead and its subcommands.
type deadCommands struct{ *tool }

func (t deadCommands) command() *cli.Command {
	return &cli.Command{
		Name:  "dead",
		Usage: "list, group, retry and archive dead letters, which are tasks that failed for good",
		Subcommands: slices.Concat([]*cli.Command{t.groupsCommand()}, t.groupCommands(), []*cli.Command{{
			Name:  "list",
			Usage: "list dead tasks with their last error, newest first",
			Description: `"task get" shows a task with its attempts. For further pages see "task list".

Example:
  holdfast dead list --type http --error "connection refused" --since 2h`,
			Flags:  append([]cli.Flag{outputFlag()}, append(append(filterFlags(), groupFlag()), listFlags()...)...),
			Action: t.do(t.list),
		}, {
			Name:      "retry",
			Usage:     "make dead tasks ready again, with all their attempts",
			ArgsUsage: "[ID...]",
			Description: `Give ids, or --all for every dead task that matches the filters, newest first. On a terminal, --all asks
for confirmation; elsewhere it needs --yes. It prints the number of retried tasks. With --dry-run the
command changes nothing and only counts. With ids, the exit code is 5 if only some tasks could be
retried.

Example:
  holdfast dead retry --all --group 3f9ad02c41b7e685 --dry-run`,
			Flags: append(append([]cli.Flag{
				outputFlag(),
				&cli.BoolFlag{Name: "all", Usage: "retry every dead task that matches the filters"},
				&cli.BoolFlag{Name: "dry-run", Usage: "change nothing; only print what would be done"},
				yesFlag(),
			}, append(filterFlags(), actorFlags()...)...), groupFlag(), limitFlag(0)),
			Action: t.do(t.retry),
		}}, t.endCommands()),
	}
}

func (t deadCommands) list(ctx context.Context, c *cli.Context) error {
	f, err := deadFilter(c)
	if err != nil {
		return err
	}
	return listTasks(ctx, t.tool, c, f, "no dead tasks match",
		column[holdfast.Task]{"failures", failures},
		column[holdfast.Task]{"crashes", func(task holdfast.Task) string { return nonzero(task.Crashes) }},
		column[holdfast.Task]{"died", func(task holdfast.Task) string { return t.stamp(task.FinishedAt) }},
		column[holdfast.Task]{"error", func(task holdfast.Task) string { return clipped(task.LastError, 80) }},
	)
}

func (t deadCommands) retry(ctx context.Context, c *cli.Context) error {
	f, err := deadFilter(c)
	if err != nil {
		return err
	}
	by, err := t.actor(c)
	if err != nil {
		return err
	}
	filtered := c.IsSet("query") || c.IsSet("group") || c.IsSet("type") || c.IsSet("queue") || c.IsSet("error") || c.IsSet("since") || c.IsSet("until") || c.IsSet("limit")
	switch {
	case c.Bool("all") && c.NArg() > 0:
		return usageOf(commandName(c), "give ids or --all, not both")
	case c.Bool("all"):
		return t.withStore(ctx, c, func(b *app.Backend) error { return t.retryAll(ctx, c, b, by, f) })
	case c.NArg() == 0:
		return usageOf(commandName(c), "no tasks given; give ids or --all")
	case filtered:
		return usageOf(commandName(c), "--query, --group, --type, --queue, --error, --since, --until and --limit need --all")
	}
	ids, err := taskIDs(c)
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		return each(t.tool, c, ids, func(id holdfast.TaskID) (surface.TaskState, error) {
			task, err := b.Store.Task(ctx, id)
			if err == nil && task.State != holdfast.Dead {
				err = fmt.Errorf("%w: cannot retry task %s: its state is %s, not dead", holdfast.ErrConflict, id, task.State)
			}
			if err == nil && !c.Bool("dry-run") {
				task, err = b.Act(ctx, by, id, store.ActionRetry)
			}
			return surface.TaskState{ID: task.ID, State: task.State}, err
		})
	})
}

// retryAll retries every task that matches the filter.
func (t deadCommands) retryAll(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, f store.Filter) error {
	counted, err := b.Store.Count(ctx, f)
	if err != nil {
		return err
	}
	n := int(counted.By[holdfast.Dead])
	if f.Limit > 0 {
		n = min(n, f.Limit)
	}
	dry := c.Bool("dry-run")
	if !dry && n > 0 {
		if err := t.confirm(c, "retry "+plural(n, "dead task")); err != nil {
			return err
		}
	}
	if dry {
		t.say("would retry %s", plural(n, "dead task"))
	} else {
		bar := t.progress(int64(n), "retry")
		n, err = b.ActAll(ctx, by, f, store.ActionRetry, func(done int) {
			if bar != nil {
				_ = bar.Set(done) // an error of the bar does not matter
			}
		})
		if bar != nil {
			_ = bar.Finish()
		}
		t.say("retried %s", plural(n, "dead task"))
	}
	if err != nil {
		return err
	}
	return t.printOne(c, struct {
		Retried int  `json:"retried"`
		DryRun  bool `json:"dry_run"`
	}{n, dry}, fmt.Sprint(n))
}
