package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// deadCommands are the commands of the noun dead.
type deadCommands struct{ *tool }

func (t deadCommands) command() *cli.Command {
	return &cli.Command{
		Name:  "dead",
		Usage: "list and retry dead letters: tasks that gave up and wait for a person",
		Subcommands: []*cli.Command{{
			Name:  "list",
			Usage: "list dead tasks with their last error, newest first",
			Description: `"task get" shows one of them with its attempts. Pages are those of "task list".

Example:
  holdfast dead list --type http --error "connection refused" --since 2h`,
			Flags:  append([]cli.Flag{outputFlag()}, append(filterFlags(), listFlags()...)...),
			Action: t.do(t.list),
		}, {
			Name:      "retry",
			Usage:     "send dead tasks again, with a fresh budget of attempts",
			ArgsUsage: "[ID...]",
			Description: `Give ids, or --all for every dead task the filters choose, newest first. --all asks first on a terminal;
anywhere else it needs --yes. It prints how many tasks were moved; --dry-run only counts. With ids, the exit code
is 5 if only some could be moved.

Example:
  holdfast dead retry --all --error "connection refused" --dry-run`,
			Flags: append(append([]cli.Flag{
				outputFlag(),
				&cli.BoolFlag{Name: "all", Usage: "every dead task that the filters choose"},
				&cli.BoolFlag{Name: "dry-run", Usage: "change nothing, say what would be done"},
				yesFlag(),
			}, filterFlags()...), limitFlag(0)),
			Action: t.do(t.retry),
		}},
	}
}

func (t deadCommands) list(ctx context.Context, c *cli.Context) error {
	return listTasks(ctx, t.tool, c, []holdfast.State{holdfast.Dead}, "no dead tasks match",
		column[holdfast.Task]{"failures", failures},
		column[holdfast.Task]{"crashes", func(task holdfast.Task) string { return nonzero(task.Crashes) }},
		column[holdfast.Task]{"died", func(task holdfast.Task) string { return t.stamp(task.FinishedAt) }},
		column[holdfast.Task]{"error", func(task holdfast.Task) string { return clipped(task.LastError, 80) }},
	)
}

func (t deadCommands) retry(ctx context.Context, c *cli.Context) error {
	f, err := filter(c)
	if err != nil {
		return err
	}
	f.States = []holdfast.State{holdfast.Dead}
	filtered := c.IsSet("type") || c.IsSet("lane") || c.IsSet("error") || c.IsSet("since") || c.IsSet("until") || c.IsSet("limit")
	switch {
	case c.Bool("all") && c.NArg() > 0:
		return usageOf(commandName(c), "give ids or --all, not both")
	case c.Bool("all"):
		return t.withStore(ctx, c, func(b *app.Backend) error { return t.retryAll(ctx, c, b, f) })
	case c.NArg() == 0:
		return usageOf(commandName(c), "which ones? give ids, or --all")
	case filtered:
		return usageOf(commandName(c), "--type, --lane, --error, --since, --until and --limit go with --all")
	}
	ids, err := taskIDs(c)
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		return each(t.tool, c, ids, func(id holdfast.TaskID) (standing, error) {
			task, err := b.Store.Task(ctx, id)
			if err == nil && task.State != holdfast.Dead {
				err = fmt.Errorf("%w: task %s is %s, not dead", holdfast.ErrConflict, id, task.State)
			}
			if err == nil && !c.Bool("dry-run") {
				task, err = b.Move(ctx, id, holdfast.EventRequeue)
			}
			return standing{task.ID, task.State}, err
		})
	})
}

// deadRetryAll moves everything the filter chooses.
func (t deadCommands) retryAll(ctx context.Context, c *cli.Context, b *app.Backend, f store.Filter) error {
	by, err := b.Store.Count(ctx, f)
	if err != nil {
		return err
	}
	n := int(by[holdfast.Dead])
	if f.Limit > 0 {
		n = min(n, f.Limit)
	}
	dry := c.Bool("dry-run")
	if !dry && n > 0 {
		if err := t.confirm(c, "send "+several(n, "dead task")+" again"); err != nil {
			return err
		}
	}
	if dry {
		t.say("would send %s again", several(n, "dead task"))
	} else {
		bar := t.progress(int64(n), "retry")
		n, err = b.MoveAll(ctx, f, holdfast.EventRequeue, func(done int) {
			if bar != nil {
				_ = bar.Set(done) // it is only for show
			}
		})
		if bar != nil {
			_ = bar.Finish()
		}
		t.say("sent %s again", several(n, "dead task"))
	}
	if err != nil {
		return err
	}
	return t.one(c, struct {
		Retried int  `json:"retried"`
		DryRun  bool `json:"dry_run"`
	}{n, dry}, fmt.Sprint(n))
}
