package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

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

// deadActions describes the actions of the noun dead.
var deadActions = map[store.Action]struct {
	from               []holdfast.State // the states of the tasks; --all selects the first one
	usage, description string
}{
	store.ActionRetry: {[]holdfast.State{holdfast.Dead}, "make dead tasks ready again, with all their attempts", ""},
	store.ActionArchive: {[]holdfast.State{holdfast.Dead}, "put dead tasks away, for as long as janitor.keep_archived says",
		`An archived task leaves its group and is in no list of dead tasks. "dead restore" and "task undo" take it back.` + "\n"},
	store.ActionRestore: {[]holdfast.State{holdfast.Archived}, "make archived tasks dead again",
		`The tasks are in their groups after at most a minute. A restore is treated as a death at that time, so a resolved
group returns.` + "\n"},
	store.ActionPurge: {[]holdfast.State{holdfast.Dead, holdfast.Archived}, "delete dead or archived tasks for good",
		`The audit log keeps the last state and error of each task, but not its payload.` + "\n"},
}

// purged is the state that "dead purge" prints for a deleted task.
const purged = holdfast.State("purged")

func (t deadCommands) changeCommand(requested store.Action) *cli.Command {
	about := deadActions[requested]
	flags := slices.Concat(outputFlag(), []cli.Flag{
		&cli.BoolFlag{Name: "all", Usage: fmt.Sprintf("%s every %s task that matches the filters", requested, about.from[0])},
		&cli.BoolFlag{Name: "dry-run", Usage: "change nothing; only print what would be done"},
	}, yesFlag(), filterFlags(), groupFlag(), limitFlag(0))
	if about.from[0] != holdfast.Dead {
		flags = slices.DeleteFunc(flags, func(f cli.Flag) bool { return f.Names()[0] == "group" })
	}
	return t.verb(string(requested)+" [ID...]", about.usage,
		fmt.Sprintf(`Give ids, or --all for every %s task that matches the filters, newest first. %s--all starts an
operation, which continues in the background whatever happens to this command; see "holdfast operation". On a terminal,
--all asks for confirmation; elsewhere it needs --yes. With --dry-run the command changes nothing and prints the number
of tasks, samples, and the expected time. The audit log has each change. With ids, the exit code is 5 if only some tasks
could be changed.

Example:
  holdfast dead %s --all --type http --until 24h --dry-run`, about.from[0], about.description, requested),
		plain(func(ctx context.Context, c *cli.Context) error { return t.change(ctx, c, requested) }),
		flags, operationFlags(requested), actorFlags())
}

// change applies an action to the tasks whose ids are the arguments, or starts an operation for --all.
func (t deadCommands) change(ctx context.Context, c *cli.Context, requested store.Action) error {
	from := deadActions[requested].from
	f, err := deadFilter(c)
	if err != nil {
		return err
	}
	f.States = from[:1]
	by, err := t.actor(c)
	if err != nil {
		return err
	}
	needAll := slices.Concat(filterFlags(), groupFlag(), limitFlag(0), operationFlags(requested))
	switch {
	case c.Bool("all") && c.NArg() > 0:
		return usageOf(commandName(c), "give ids or --all, not both")
	case c.Bool("all"):
		return t.startOperation(ctx, c, by, operate.Request{Action: requested, Query: queryText(c, from[0]), Filter: f})
	}
	for _, flag := range needAll {
		if name := flag.Names()[0]; c.IsSet(name) {
			err := fmt.Errorf("--%s needs --all", name)
			return &failure{err: err, code: exitUsage, hint: fmt.Sprintf("to %s every %s task that matches the filters, add --all", requested, from[0])}
		}
	}
	if c.NArg() == 0 {
		return usageOf(commandName(c), "no tasks given; give ids or --all")
	}
	var r tasks
	if err := readRequest(c, &r); err != nil {
		return err
	}
	if requested == store.ActionPurge && !c.Bool("dry-run") {
		if err := t.confirm(c, "delete "+plural(len(r.IDs), "task")+" for good"); err != nil {
			return err
		}
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		return changeEach(t.tool, c, r.IDs, func(id holdfast.TaskID) (surface.TaskState, error) {
			task, err := b.Store.Task(ctx, id)
			if err == nil && !slices.Contains(from, task.State) {
				err = fmt.Errorf("%w: cannot %s task %s: its state is %s, not %s", holdfast.ErrConflict, requested, id, task.State, from[0])
			}
			if err == nil && !c.Bool("dry-run") {
				task, err = b.Act(ctx, by, id, requested)
			}
			if requested == store.ActionPurge && !c.Bool("dry-run") {
				task.State = purged
			}
			return surface.TaskState{ID: task.ID, State: task.State}, err
		})
	})
}
